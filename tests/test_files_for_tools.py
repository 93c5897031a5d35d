"""Files that other tools read: the skill for agents, the action, the citation, and what the site is made of."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import uncone
from tests.command import load_script
from uncone import cli
from uncone.questions import OBJECTS, QUESTIONS

ROOT = Path(__file__).parent.parent
SKILL = ROOT / ".well-known/agent-skills/uncone/SKILL.md"


def test_the_skill_has_a_name_a_description_and_commands_that_exist() -> None:
    yaml = pytest.importorskip("yaml")
    _, head, text = SKILL.read_text(encoding="utf-8").split("---\n", 2)
    facts = yaml.safe_load(head)
    assert facts["name"] == SKILL.parent.name
    assert 0 < len(facts["description"]) <= 1024
    commands = [
        command for command in re.findall(r"`uncone ([^`]+)`", text) if not command.startswith(("doctor", "report"))
    ]
    assert len(commands) > 10
    for command in commands:
        found, bound, _ = cli.app.parse_args(shlex.split(command), exit_on_error=False, print_error=False)
        assert bound.arguments, found


@pytest.fixture(scope="module")
def action() -> Any:
    return pytest.importorskip("yaml").safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))


def run_action(action: Any, folder: Path, **given: str) -> tuple[int, str]:
    """The exit status of its steps but the installation, and the job's summary."""
    values = {name: one.get("default", "") for name, one in action["inputs"].items()} | given
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    summary = folder / "summary.md"
    for step in action["runs"]["steps"][1:]:
        filled = {
            key: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda m: values[m[1]], text)
            for key, text in step["env"].items()
        }
        env = os.environ | filled | {"PATH": path, "GITHUB_STEP_SUMMARY": str(summary)}
        done = subprocess.run(["bash", "-eo", "pipefail", "-c", step["run"]], cwd=folder, env=env, capture_output=True)
        if done.returncode:
            return done.returncode, done.stderr.decode() + done.stdout.decode()
    return 0, summary.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_action_fails_on_a_defect_and_beyond_a_bar(action: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.save(tmp_path / "even.npy", rng.normal(size=(2000, 32)).astype("float32"))
    np.save(
        tmp_path / "copies.npy", np.ones((2000, 32), "float32") + 1e-3 * rng.normal(size=(2000, 32)).astype("float32")
    )
    status, summary = run_action(action, tmp_path, spec="even.npy", max="mean_cosine=0.3 mean_shift=0.5")
    assert status == 0
    assert "mean cosine" in summary
    assert run_action(action, tmp_path, spec="even.npy", max="mean_cosine=-0.5 mean_shift=0.5")[0] == 2
    assert run_action(action, tmp_path, spec="copies.npy", **{"fail-on": "warning"})[0] == 2


def test_the_action_puts_no_input_into_a_script(action: Any) -> None:
    """A value is passed as an environment variable, so that none is run."""
    used = set()
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"]
        used |= {name for text in step["env"].values() for name in re.findall(r"inputs\.([\w-]+)", text)}
    assert used == set(action["inputs"])


def test_the_citation_has_the_version() -> None:
    facts = pytest.importorskip("yaml").safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (facts["version"], facts["license"]) == (uncone.__version__, "Apache-2.0")


SITE = load_script(ROOT / "docs/site.py")


@pytest.mark.parametrize(
    "fetching",
    [
        '<script src="https://cdn.example/x.js"></script>',
        '<link rel="stylesheet" href="//fonts.example/css">',
        '<img alt="" src=http://x.example/a.png>',
        "@import url('https://x.example/a.css')",
        "a { background: url(https://x.example/a.png) }",
    ],
)
def test_a_page_that_fetches_something_is_found(fetching: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(f"<p>fine</p>{fetching}", encoding="utf-8")
    assert len(SITE.elsewhere([tmp_path / "page.html"])) == 1


def test_a_page_that_links_elsewhere_fetches_nothing(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('<a href="https://x.example">x</a><img src="a.png">', encoding="utf-8")
    assert SITE.elsewhere([tmp_path / "page.html"]) == []


def test_the_site_has_every_page_of_its_menu_and_every_public_name(tmp_path: Path) -> None:
    SITE.stage(tmp_path)
    pages = SITE.menu()
    assert len(pages) > 25
    assert [page for _, page in pages if not (tmp_path / page).exists()] == []
    api = (tmp_path / "docs/api.md").read_text(encoding="utf-8")
    assert all(f"heading: uncone.{name}\n" in api for name in [*QUESTIONS, *OBJECTS])
    text = SITE.for_agents(tmp_path)
    assert text.startswith("# uncone\n\n> ")
    assert text.count("\n- [") == len(pages)
