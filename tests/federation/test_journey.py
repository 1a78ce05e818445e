"""The journeys of the guides to federations, as a reader would type them, in order, with real noise."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from taciturn.federation.drafts import IDENTITY_FILE
from taciturn.federation.identity import Identity
from taciturn.federation.local_cluster import find_free_port
from taciturn.federation.policy import read_site
from taciturn.federation.site_operations import site_status
from taciturn.federation.transcript import read_transcript
from tests.cli import warm
from tests.cli.helpers import PATIENCE, ROOT, environment
from tests.test_documents import snippets

pytestmark = pytest.mark.federation

PAGE = ROOT / "docs" / "howto" / "federate-four-sites.md"
FIVE = ROOT / "docs" / "howto" / "federate-five-sites.md"
START = ["federation", "site", "start"]
INIT = ["federation", "init"]
SITES = ("cleveland", "hungarian", "switzerland", "va")
CHECK = "site check cleveland/site.toml"
VERIFY = ["federation", "site", "verify"]


@dataclass
class Reader:
    """Somebody at a terminal, with a second one for each agent."""

    folder: Path
    page: Path = PAGE
    said: dict[str, str] = field(default_factory=dict)  # what each command printed
    agents: dict[str, warm.Process] = field(default_factory=dict)  # by their site.toml

    def type(self, line: str) -> None:
        """One line of the page; Taciturn's commands, mkdir, cp and cd are all it needs."""
        words = [found for word in shlex.split(line, comments=True) for found in self._expand(word)]
        match words:
            case ["cd", place]:
                self.folder /= place
            case ["mkdir", place]:
                (self.folder / place).mkdir()
            case ["cp", "-r", source, target]:
                shutil.copytree(self.folder / source, self.folder / target)
            case ["taciturn", *rest] if rest[:3] == START:
                self._start(rest)
            case ["taciturn", *rest, ">", file]:
                (self.folder / file).write_text(self._run(rest))
            case ["taciturn", *rest] if rest[:3] == VERIFY and len(rest) == 6:
                self.said[line] = self._run([*rest[:5], self._telephone(rest[4])])
            case ["taciturn", *rest]:
                code = int(found[1]) if (found := re.search(r"# exit code (\d)$", line)) else 0
                self.said[line] = self._run(rest, code)
                if rest[:2] == INIT:
                    self._edit_terms()
            case _:
                raise AssertionError(f"{self.page.name}: {line}")

    def stop(self) -> None:
        """Ask all agents to end, and see that they do."""
        for agent in self.agents.values():
            agent.send_signal(signal.SIGTERM)
        for agent in self.agents.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(PATIENCE)
        codes = {name: agent.poll() for name, agent in self.agents.items()}
        for agent in self.agents.values():
            agent.kill()
        assert set(codes.values()) <= {0}, codes

    def _expand(self, word: str) -> list[str]:
        """As a shell does: a name with a star stands for what is there."""
        found = sorted(self.folder.glob(word)) if "*" in word else []
        return [str(path.relative_to(self.folder)) for path in found] or [word]

    def _telephone(self, site: str) -> str:
        """What people at a site read out: the page has the digits of another day."""
        return Identity.open(self.folder / site / IDENTITY_FILE).public.fingerprint

    def _run(self, words: list[str], code: int = 0) -> str:
        done = warm.run(["-m", "taciturn", *words], self.folder, environment(COLUMNS="160"), pictures=False)
        agents = "\n".join("".join(agent.printed()) for agent in self.agents.values())
        assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}\n{agents}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout if code == 0 else done.stderr

    def _start(self, words: list[str]) -> None:
        started = warm.Process(["-m", "taciturn", *words], self.folder, environment(), pictures=False)
        self.agents[words[-1]] = started

    def _edit_terms(self) -> None:
        """What the page tells the reader to change, and a port that nobody else's test has."""
        path = self.folder / "federation.toml"
        text = path.read_text()
        for line in snippets(self.page, "toml")[0].splitlines():
            key = line.split(" = ")[0]
            text, count = re.subn(rf"^# {key} = .*$", line, text, flags=re.MULTILINE)
            assert count == 1, key
        text, count = re.subn(r"^port = 8002$", f"port = {find_free_port()}", text, flags=re.MULTILINE)
        assert count == 1
        path.write_text(text)


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    found = Reader(tmp_path)
    try:
        yield found
    finally:
        found.stop()


def follow(reader: Reader) -> None:
    for code in snippets(reader.page, "sh"):
        for line in code.replace("\\\n", " ").splitlines():
            if line.strip():
                reader.type(line)


def test_five_sites_verify_each_other_before_they_start(reader: Reader) -> None:
    reader.page = FIVE
    follow(reader)
    refused, *checked = [said for line, said in reader.said.items() if "site check" in line]
    assert "nobody at this site has verified the identities of bern, chur, davos, erlen" in refused
    (listed,) = [said for line, said in reader.said.items() if line.endswith("site verify aarau/site.toml")]
    assert "3 of 4 verified" in listed and "3 of 4 verified" in checked[0]
    drafted, shown_terms, *_ = snippets(FIVE, "text")
    assert drafted in (reader.folder / "federation.toml").read_text()
    terms = reader.said["taciturn federation terms federation.toml"]
    for line in shown_terms.replace("\n      ", " ").splitlines():  # as the page shows them
        name = line.split()[0]
        (shown,) = re.findall(rf"^{name} .*$", terms, re.MULTILINE)
        assert shown.split() == line.split()


def test_the_page_can_be_followed(reader: Reader) -> None:
    follow(reader)
    assert tuple(Path(agent).parent.name for agent in reader.agents) == SITES
    assert reader.said["taciturn federation site transcript cleveland/site.toml"].endswith(
        "the ledgers cover all of it\n"
    )
    told = reader.said["taciturn federation site status cleveland/site.toml"]
    assert "epsilon 1 of 3" in told and "model signed by the coordinator" in told
    terms, check = (reader.said[f"taciturn federation {words}"] for words in ("terms federation.toml", CHECK))
    (digest,) = re.findall(r"^hash +((?:[0-9a-f]{4} ?){16})$", terms, re.MULTILINE)
    assert re.findall(r"^hash +(.*)$", check, re.MULTILINE) == [digest]  # what people compare by telephone
    assert "additive, 40 rounds" in terms and "1 of 1 at delta 1e-06" in terms
    (predictions,) = reader.folder.glob("predictions.csv")
    assert len(predictions.read_text().splitlines()) == len((reader.folder / "test.csv").read_text().splitlines())
    (run,) = reader.folder.glob("runs/*")
    assert (run / "report.html").is_file()

    for name in SITES:
        place = reader.folder / name / "site.toml"
        found_status = site_status(place)
        assert found_status["total_epsilon"] == 3.0
        assert found_status["epsilon_used"] == pytest.approx(1.0, rel=1e-3)
        (study,) = found_status["studies"]
        assert (study["study"], study["rounds"], study["non_private"]) == ("heart", 40, "")
        assert study["closed"] and 0.99 < study["spent_epsilon"] <= 1.0
        for file in ("report.html", "model.npz", "ledger.jsonl"):
            assert (Path(study["folder"]) / file).is_file()
        found = read_transcript(read_site(place))
        kinds = [line.departure.kind for line in found.lines]
        assert found.faults == []
        assert (kinds[0], kinds.count("answer"), kinds[-1]) == ("ready", 40, "closed")
