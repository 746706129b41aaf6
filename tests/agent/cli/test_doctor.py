"""`kernelwright doctor`, as a person and as a script read it."""

import json

import typer
from typer.testing import CliRunner

from kernelwright.agent.cli.doctor import doctor

app = typer.Typer()
app.command()(doctor)


def test_a_person_reads_one_plain_line_a_question():
    result = CliRunner().invoke(app)
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("ok  python")
    assert any(line.startswith(("ok  g++", "no  g++")) for line in lines)
    assert "\x1b" not in result.output


def test_a_script_reads_one_object_and_exit_code_3_when_no_back_end_can_run(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = CliRunner().invoke(app, ["--json"])
    assert result.exit_code == 3
    report = json.loads(result.stdout)
    assert report["schema"] == "kernelwright.doctor/1"
    assert report["ready"] is False
    assert {"name", "ok", "detail", "remedy"} == set(report["findings"][0])
