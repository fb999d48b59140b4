"""Make the lists of words that are folded because they name groups of people or places.

    python -m model_export.data.blind_words WORDNET

WORDNET is the folder `dict` of WordNet 3.1; Babel brings the names of CLDR.

A word is in groups.txt if WordNet has it, capitalized, among the hyponyms of inhabitant, religious person,
ethnic group, faith or language, or as an adjective that pertains to one of these or to a country. It is in
places.txt if CLDR or WordNet name a country, a region or a capital by it. Words with another meaning in lower
case ("polish", "turkey") go to ambiguous.txt: they are folded only where a capital letter inside a sentence
marks a name.
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parent
# Nouns, in all their senses: what is written with a capital letter below them is a group or a place.
GROUP_ROOTS = (
    "inhabitant", "religious_person", "ethnic_group", "nonreligious_person", "person_of_color",
    "homosexual", "bisexual", "heterosexual", "transsexual", "native_american", "semite", "slav",
)  # fmt: skip
BELIEF_ROOTS = ("religion", "christianity", "language")
PLACE_ROOTS = ("country", "national_capital", "continent", "state_capital", "american_state")
WITHOUT_PLURAL = ("s", "ese", "ish", "x", "z", "ism", "ity", "shman", "chman")
_WORD = re.compile(r"[A-Za-z]{2,}$")


class WordNet:
    """The synsets of nouns and adjectives: lemmas, hyponyms and what an adjective pertains to."""

    def __init__(self, folder: Path) -> None:
        self.lemmas: dict[tuple[str, str], list[str]] = {}
        self.pointers: dict[tuple[str, str], list[tuple[str, tuple[str, str]]]] = {}
        self.synsets: dict[str, list[tuple[str, str]]] = defaultdict(list)  # of each lemma, as written
        for part in ("noun", "adj", "verb", "adv"):
            for line in (folder / f"data.{part}").read_text(encoding="utf-8").splitlines():
                if not line.startswith("  "):
                    self._read(part, line.split(" | ")[0].split(" "))

    def _read(self, part: str, fields: list[str]) -> None:
        key = part, fields[0]
        n_words = int(fields[3], 16)
        lemmas = [re.sub(r"\(\w+\)$", "", fields[4 + 2 * i]) for i in range(n_words)]
        at = 4 + 2 * n_words
        names = {"n": "noun", "v": "verb", "a": "adj", "s": "adj", "r": "adv"}
        self.lemmas[key] = lemmas
        self.pointers[key] = [
            (fields[at + 1 + 4 * i], (names[fields[at + 3 + 4 * i]], fields[at + 2 + 4 * i]))
            for i in range(int(fields[at]))
        ]
        for lemma in lemmas:
            self.synsets[lemma].append(key)

    def hyponyms(self, lemmas: Iterable[str]) -> set[tuple[str, str]]:
        """Return the noun synsets of some lemmas and of all their hyponyms and instances."""
        queue = [key for lemma in lemmas for key in self.synsets[lemma] if key[0] == "noun"]
        found = set(queue)
        while queue:
            for kind, key in self.pointers[queue.pop()]:
                if kind in ("~", "~i") and key not in found:
                    found.add(key)
                    queue.append(key)
        return found

    def capitalized(self, keys: Iterable[tuple[str, str]]) -> set[str]:
        """Return the words of some synsets that are written with a capital letter, in lower case."""
        return {
            lemma.lower() for key in keys for lemma in self.lemmas[key]
            if lemma[0].isupper() and not lemma.isupper() and _WORD.match(lemma)
        }  # fmt: skip

    def is_ordinary(self, word: str) -> bool:
        """Return whether a word, or its singular, has a meaning in lower case."""
        return bool(self.synsets[word]) or (word.endswith("s") and bool(self.synsets[word[:-1]]))

    def pertaining(self, keys: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Return the adjectives that pertain to one of some synsets."""
        return {
            key for key, pointers in self.pointers.items()
            if key[0] == "adj" and any(kind in ("\\", "+") and target in keys for kind, target in pointers)
        }  # fmt: skip


def make_lists(wordnet: WordNet) -> dict[str, set[str]]:
    """Return the words of each list."""
    from babel import Locale  # a dependency of the documentation only

    english = Locale("en")
    places = wordnet.hyponyms(PLACE_ROOTS)
    people = wordnet.hyponyms(GROUP_ROOTS) | wordnet.hyponyms(BELIEF_ROOTS)
    groups = wordnet.capitalized(people | wordnet.pertaining(people | places))
    groups |= {name.lower() for name in english.languages.values() if _WORD.match(name)}
    names = wordnet.capitalized(places)
    names |= {name.lower() for name in english.territories.values() if _WORD.match(name)}
    groups |= {
        f"{word}s" for word in groups if not word.endswith(("s", "ese", "ish", "x", "z", "ism", "ity"))
    }
    names -= groups
    ambiguous = {word for word in groups | names if wordnet.is_ordinary(word)}
    return {"groups": groups - ambiguous, "places": names - ambiguous, "ambiguous": ambiguous}


if __name__ == "__main__":
    for name, words in make_lists(WordNet(Path(sys.argv[1]))).items():
        (FOLDER / f"{name}.txt").write_text("\n".join(sorted(words)) + "\n", encoding="utf-8")
        print(f"{name}.txt: {len(words)} words")
