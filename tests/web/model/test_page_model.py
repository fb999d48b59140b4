"""The Models view: its cards are those of the service, and its code snippets run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from page_actions import OpenPage, add_models, read_points, read_snippet, wait_until_ready
from playwright.sync_api import Page, expect


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_cards_version_and_provider_are_those_of_the_service(open_page: OpenPage, server: str) -> None:
    page = open_page("#model")
    info = httpx.get(f"{server}/info").json()
    sentence = f"hardmax {info['version']} runs on {info['provider'].upper()}"
    expect(page.locator("#model-server")).to_contain_text(sentence)
    cards = httpx.get(f"{server}/models").json()["models"]
    expect(page.locator("#cards article")).to_have_count(len(cards))
    for card in cards:
        article = page.locator(f'[data-model="{card["name"]}"]')
        expect(article).to_contain_text(card["description"])
        expect(article).to_contain_text(card["license"])
        if card["kind"] == "text-classification":
            expect(article.locator("dl.facts").first).to_contain_text(f"Dimension{card['dimension']}")


def test_snippets_of_the_latest_requests_run(open_page: OpenPage) -> None:
    page = wait_until_ready(open_page('#review?text=It\'s+a+"superb"+film'))
    page.get_by_role("link", name="Cloud").click()
    wait_until_ready(page)
    page.get_by_role("link", name="Models").click()
    page.locator("#snippet-cloud pre").first.wait_for()
    answers, printed = {}, {}
    for view in ("review", "cloud"):
        assert read_snippet(page, view, "Python").startswith("from hardmax import Client\n")
        answers[view] = json.loads(run("bash", "-c", f"{read_snippet(page, view, 'curl')} -sS"))
        printed[view] = run(sys.executable, "-c", read_snippet(page, view, "Python"))
    [text] = answers["review"]["data"]
    assert printed["review"].startswith(f"{text['label']} {text['score']}")
    assert answers["cloud"]["n"] == 9
    assert printed["cloud"].startswith("certified 1\n")


def add_custom_models(page: Page) -> None:
    """Add a model of thirty labels to the served ones, and its encoder."""
    labels = [f"subject {k}" for k in range(30)]
    figures = {"rows": 90, "accuracy": 0.9, "linear_accuracy": 0.6, "labels": dict.fromkeys(labels, 0.75)}
    model = {"name": "mine", "kind": "text-classification", "labels": labels, "figures": figures}
    encoder = {"name": "english", "kind": "encoder", "description": "Reads."}
    add_models(page, {**model, "encoder": {"name": "english"}}, encoder)


@pytest.mark.parametrize("width", [1440, 390])
def test_custom_models_are_listed_with_their_labels_and_tried(open_page: OpenPage, width: int) -> None:
    page = open_page("#model", width=width, before=add_custom_models)
    custom_model = page.locator('[data-model="mine"]')
    expect(custom_model).to_contain_text("subject 11 and 18 more")
    expect(custom_model).to_contain_text("Encoderenglish")
    expect(custom_model.locator("dl.figures")).to_have_text("Accuracy90.0 %TF-IDF baseline60.0 %")
    custom_model.get_by_text("Recall per label").click()
    expect(custom_model.get_by_role("row")).to_have_count(1 + 30)
    expect(page.locator('[data-model="english"] small')).to_have_text("encoder")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.route("**/classify", lambda route: route.abort())
    custom_model.get_by_role("link", name="Try it").click()
    expect(page.locator("#review-model")).to_have_value("mine")
    expect(page.locator("#review-model option")).to_have_count(2)  # an encoder is not a classifier


def add_versions(page: Page) -> None:
    """Add versions of a model to the served ones; requests to /classify fail."""
    card = {"kind": "text-classification", "labels": ["a", "b"], "description": "Mine."}
    add_models(page, {**card, "name": "mine@2"}, {**card, "name": "mine@10", "again": "mine@2"})
    page.route("**/classify", lambda route: route.abort())


def test_name_of_a_model_means_its_newest_version(open_page: OpenPage) -> None:
    page = open_page("#model", before=add_versions)
    newest = page.locator('[data-model="mine@10"]')
    expect(newest.locator("h2")).to_contain_text("mine")
    expect(newest).to_contain_text("Rollback to mine@2: Mine.")
    expect(newest).to_contain_text("mine@10 (served as mine), mine@2")
    expect(page.locator('[data-model="mine@2"]')).to_have_count(0)
    expect(open_page("#review?model=mine", before=add_versions).locator("#review-model")).to_have_value(
        "mine@10"
    )


def test_snippets_with_many_points_run_with_a_matrix(open_page: OpenPage, tmp_path: Path) -> None:
    page = wait_until_ready(open_page("#cloud?preset=random&stretch=4&turn=30"))
    points = read_points(page)
    outcome = page.locator("#result-details").inner_text()
    page.get_by_role("link", name="Models").click()
    page.locator("#snippet-cloud pre").first.wait_for()
    np.save(tmp_path / "cloud.npy", points)
    answer = json.loads(run("bash", "-c", f"cd {tmp_path}; {read_snippet(page, 'cloud', 'curl')} -sS"))
    printed = run(
        sys.executable,
        "-c",
        f"import os; os.chdir({str(tmp_path)!r})\n{read_snippet(page, 'cloud', 'Python')}",
    )
    margin = re.search(r"margin (\S+)", outcome)
    assert margin is not None
    assert float(margin[1]) == pytest.approx(answer["margin"], rel=0.01)
    assert printed.startswith(f"certified {answer['certified_layer']}\n")
    assert len(printed.splitlines()) == 1 + len(answer["leaders"])


def test_snippets_and_links_are_copied_over_plain_http(open_page: OpenPage) -> None:
    def disable_clipboard(page: Page) -> None:
        page.add_init_script("Object.defineProperty(navigator, 'clipboard', { value: undefined })")

    page = wait_until_ready(open_page("#model", before=disable_clipboard))
    other_page = open_page("#model")
    page.bring_to_front()
    for name in ("Copy curl command", "Copy a link to this view"):
        button = page.get_by_role("button", name=name).first
        copied = "navigator.clipboard.readText()"
        shown = page.evaluate("location.href") if "link" in name else read_snippet(page, "review", "curl")
        button.click()
        expect(page.locator("#live")).to_have_text(re.compile("copied"))
        expect(button).to_be_focused()
        other_page.bring_to_front()
        assert other_page.evaluate(copied) == shown
        page.bring_to_front()
    page.evaluate("document.execCommand = () => false")
    page.get_by_role("button", name="Copy curl command").first.click()
    expect(page.get_by_role("button", name="Copy curl command").first).to_have_text("Copy failed")
    expect(page.locator("#live")).to_have_text("The browser does not allow copying")
