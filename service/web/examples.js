/* Sentences to begin with. */

export const EXAMPLES = [
  {
    name: "Praise",
    text: "A superb cast, a story that stays with you, and not one dull minute. I loved every scene of it, and the last ten minutes are simply perfect.",
  },
  {
    name: "A waste of time",
    text: "What a waste of time. The plot is predictable, the acting is awful, and after ten minutes I was bored. The worst film I have seen this year.",
  },
  {
    name: "Not bad",
    text: "Not bad at all: the jokes are funny and the ending is charming, although the middle is a little slow.",
  },
  {
    name: "Torn",
    text: "I hoped for a masterpiece and got a mess. The photography is beautiful and the music is great, but beautiful pictures cannot save a script this poor, and nobody on the screen seems to care.",
  },
];
