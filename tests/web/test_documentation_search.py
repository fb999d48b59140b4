"""The search of the documentation site, in a browser: the page that answers a question is near the top."""

import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from paths import ROOT
from playwright.sync_api import Browser

EXPECTED_PAGES = {
    "how do I abstain": "abstain",
    "export to SHAP": "shap-export",
    "what does read mean": "answer",
    "429": "errors",
    "503": "errors",
    "migrate from TEI": "migrate",
    "calibrate": "abstain",
    "deploy": "operations",
    "kubernetes": "operations",
    "metrics": "operations",
    "counterfactual": "counterfactuals",
    "what is guaranteed": "guarantees",
    "custom model": "custom-models",
    "gpu": "gpu",
    "confusion matrix": "custom-models",
    "german": "faq",
    "feedback": "faq",
    "root path": "gateway",
    "helm": "operations",
    "delimiter": "files",
    "bibtex": "faq",
    "excel": "files",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-m", "sphinx", "-q", "-W", "docs", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.mark.system
@pytest.mark.early
@pytest.mark.timeout(600)
def test_search_of_the_documentation_lists_the_page_that_answers_among_the_first_three(
    site: Path, browser: Browser
) -> None:
    page = browser.new_page()
    results: dict[str, list[str]] = {}
    for question in EXPECTED_PAGES:
        page.goto(f"{site.as_uri()}/search.html?q={quote(question)}")
        page.wait_for_function("document.querySelector('.search-summary')?.innerText")
        links = page.locator("#search-results ul.search > li > a")
        names = [Path(link.get_attribute("href") or "").name for link in links.all()]
        results[question] = [name.partition(".html")[0] for name in names[:3]]
    page.close()
    missed = {question: pages for question, pages in results.items() if EXPECTED_PAGES[question] not in pages}
    assert missed == {}
