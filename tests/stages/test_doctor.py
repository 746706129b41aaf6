"""The doctor asks the real machine; only the model endpoint is a server of the test's own."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kernelwright.stages import doctor
from kernelwright.stages.doctor import Finding, probe, usable
from kernelwright.stages.sandbox import confine


@pytest.fixture
def no_endpoint(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_every_question_has_an_answer_and_every_shortfall_a_remedy(no_endpoint):
    findings = probe()
    assert [f.name for f in findings] == [
        "python", "torch", "triton", "g++", "nvrtc", "gpu", "ninja", "sandbox: network",
        "sandbox: processes", "sandbox: files", "sandbox: privileges", "sandbox: system calls",
        "model endpoint", "disk",
    ]  # fmt: skip
    for finding in findings:
        assert finding.detail
        assert bool(finding.remedy) == (finding.ok is not True), finding
    assert usable(findings)


def test_a_measure_of_the_sandbox_that_is_missing_is_told_with_its_reason(monkeypatch):
    said = dict.fromkeys(confine.MEASURES, True) | {"network": "Operation not permitted"}
    monkeypatch.setattr(doctor, "_try_python", lambda code: doctor._Tried(True, json.dumps(said)))
    network, *others = doctor._sandbox()
    assert network.ok is None
    assert network.detail == "Operation not permitted; candidates run without it"
    assert "user namespaces" in network.remedy
    assert all(finding.ok for finding in others)


@pytest.mark.parametrize(
    ("good", "ready"),
    [
        ({"python", "torch", "g++"}, True),
        ({"python", "torch", "gpu", "triton"}, True),
        ({"python", "torch", "gpu"}, False),
        ({"python", "torch", "triton"}, False),
        ({"torch", "g++"}, False),
        ({"python", "g++"}, False),
    ],
)
def test_one_back_end_that_can_run_is_enough(good, ready):
    names = ("python", "torch", "triton", "g++", "gpu")
    assert usable([Finding(name, name in good, "") for name in names]) is ready


def test_missing_compiler_is_found_out(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = doctor._gpp()
    assert finding.ok is False
    assert "apt-get install g++" in finding.remedy


def test_compiler_that_cannot_build_is_not_taken_for_one(monkeypatch, tmp_path):
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\necho cannot find cc1plus >&2; exit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    finding = doctor._gpp()
    assert finding.ok is False
    assert "cannot find cc1plus" in finding.detail


class _Server(BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers["Authorization"] == "Bearer sk-right"
        if self.path == "/moved/models":
            self.send_response(302)
            self.send_header("Location", "/v1/models")
        else:
            self.send_response(200 if known else 401)
        self.end_headers()

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture
def server():
    httpd = HTTPServer(("127.0.0.1", 0), _Server)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://user:hunter2@127.0.0.1:{httpd.server_port}"
    httpd.shutdown()


def asked(monkeypatch, base, key):
    monkeypatch.setenv("OPENAI_BASE_URL", base)
    monkeypatch.setenv("OPENAI_API_KEY", key)
    return doctor._endpoint()


@pytest.mark.parametrize(
    ("path", "key", "ok", "told"),
    [
        ("/v1", "sk-right", True, "answers"),
        ("/v1", "sk-wrong", False, "refuses the key"),
        ("/v1", "", False, "wants a key"),
        ("/moved", "sk-right", True, "HTTP 302"),
        ("/v1", "sk-broken\nkey", False, "malformed"),
    ],
)
def test_endpoint_is_asked_and_the_key_never_shown(monkeypatch, server, path, key, ok, told):
    host = server.replace("user:hunter2@", "")
    finding = asked(monkeypatch, host + path, key)
    assert finding.ok is ok
    assert told in finding.detail
    assert "sk-" not in str(finding)


def test_endpoint_that_is_not_there(monkeypatch, server):
    finding = asked(monkeypatch, "http://user:hunter2@127.0.0.1:1/v1", "sk-right")
    assert finding.ok is False
    assert "does not answer" in finding.detail
    assert "hunter2" not in str(finding)
    assert "malformed" in asked(monkeypatch, "not a url", "sk-right").detail


def test_no_endpoint_is_no_fault(no_endpoint):
    assert doctor._endpoint().ok is None
