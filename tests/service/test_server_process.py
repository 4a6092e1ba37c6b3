"""Tests of ``amlog serve`` as a process: its address, its log, signals and TLS."""

from __future__ import annotations

import http.client
import signal
import ssl
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
import trustme

from agent_memory_log import open_sync_store
from agent_memory_log.service.store_operations import AppendEvents
from agent_memory_log.service.wire import encode_operation
from tests import amlog
from tests.service.serving import Address, ServerProcess, message
from tests.waiting import PATIENCE, until_blocking

RUN = {"agent": "a", "run": "r"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_loses_no_acknowledged_append(tmp_path: Path, number: signal.Signals) -> None:
    """Each writer has its own run. Its acknowledged appends must be the first events of the run, and all be there."""
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    acknowledged = [0] * 8
    with ServerProcess(url, tmp_path / "log") as server:

        def write(writer: int) -> None:
            connection = http.client.HTTPConnection(server.host, server.port, timeout=PATIENCE)
            try:
                while True:
                    append = AppendEvents("a", f"r{writer}", (message(f"e{acknowledged[writer]}"),))
                    body = msgspec.json.encode(encode_operation(append))
                    headers = {"content-type": "application/json"}
                    connection.request("POST", "/v1/runs/append_events", body, headers)
                    response = connection.getresponse()
                    body = response.read()
                    if response.status == 503:
                        return  # the server is stopping
                    assert response.status == 200, body
                    acknowledged[writer] += 1
            except (OSError, http.client.HTTPException):
                return  # the server has stopped
            finally:
                connection.close()

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(8)]
        for thread in threads:
            thread.start()
        with server.stream("runs/follow", RUN) as stream:
            stream.next()
            until_blocking(lambda: min(acknowledged) > 5)
            server.process.send_signal(number)
            assert stream.next() is None
        for thread in threads:
            thread.join(PATIENCE)
        assert server.process.wait(PATIENCE) == 0
    with open_sync_store(url) as store:
        for writer, count in enumerate(acknowledged):
            log = store.load_run("a", f"r{writer}").log
            assert [event.event_id for event in log[:count]] == [f"e{number}" for number in range(count)]
            assert len(log) <= count + 1


def test_a_stop_answers_a_request_whose_body_is_still_arriving(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with ServerProcess(url, tmp_path / "log") as server, server.connect() as connection:
        body = msgspec.json.encode(encode_operation(AppendEvents("a", "r", (message("e"),))))
        head = f"POST /v1/runs/append_events HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nExpect: 100-continue\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(1_000).startswith(b"HTTP/1.1 100 Continue")
        with server.stream("runs/follow", RUN) as stream:
            stream.next()
            server.process.send_signal(signal.SIGTERM)
            assert stream.next() is None  # the server is stopping
        for _ in range(2):  # until the accepted request is answered
            assert server.request("GET", "/readyz").status == 503
            assert server.request("GET", "/healthz").status == 200
            refused = server.post("runs/load_run", {"agent": "a", "run": "r"})
            assert (refused.status, refused.json["code"]) == (503, "store_unavailable")
        connection.sendall(body)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 200 OK")
        assert server.process.wait(PATIENCE) == 0
    with open_sync_store(url) as store:
        assert len(store.load_run("a", "r").log) == 1


def test_a_second_signal_ends_the_server_at_once(tmp_path: Path) -> None:
    with ServerProcess("memory:", tmp_path / "log") as server, server.connect() as connection:
        head = "POST /v1/runs/load_run HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
        connection.sendall(f"{head}Expect: 100-continue\r\nHost: 127.0.0.1:{server.port}\r\n\r\n".encode())
        assert connection.recv(1_000).startswith(b"HTTP/1.1 100 Continue")
        with server.stream("runs/follow", RUN) as stream:
            stream.next()
            server.process.send_signal(signal.SIGTERM)
            assert stream.next() is None
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 128 + signal.SIGTERM


def test_a_killed_server_keeps_each_acknowledged_append(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'runs.db'}"
    with ServerProcess(url, tmp_path / "log") as server:
        for number in range(3):
            server.call(AppendEvents("a", "r", (message(f"e{number}"),)))
        server.process.kill()
    with ServerProcess(url, tmp_path / "log") as server:
        result = server.call(AppendEvents("a", "r", (message("e2"), message("e3"))))
        assert (result.version, result.inserted) == (4, 1)


def test_the_log_has_a_line_for_each_request_and_no_contents(tmp_path: Path) -> None:
    with ServerProcess("memory:", tmp_path / "log", "--tenant", "acme", "--user", "1") as server:
        answer = server.post("memory/remember", {"key": "language", "value": "hunter2"}, x_evil="hunter2")
        assert answer.status == 200
        assert server.request("GET", "/hunter2?hunter2", authorization="hunter2").status == 404
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
        lines = [line for line in server.log if line["message"] == "answered"]
    assert "hunter2" not in (tmp_path / "log").read_text()
    assert [(line["operation"], line["caller"], line["status"]) for line in lines] == [
        ("memory/remember", "local", 200),
        ("unknown", "", 404),
    ]
    assert lines[0]["request"] == answer.headers["x-request-id"]
    assert lines[0]["seconds"] > 0


def test_a_server_without_a_reader_of_its_log_still_answers(tmp_path: Path) -> None:
    process = amlog.start("serve", "--store", f"sqlite:///{tmp_path / 'runs.db'}", "--port", "0")
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        server = Address(process.stdout.readline().decode().strip())
        process.stderr.close()
        for number in range(300):  # more than a buffer of lines
            assert server.call(AppendEvents("a", "r", (message(f"e{number}"),))).version == number + 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        process.stdout.close()
    finally:
        process.kill()
        process.wait(PATIENCE)


def test_metrics_count_requests_by_operation_and_status(tmp_path: Path) -> None:
    with ServerProcess("memory:", tmp_path / "log") as server:
        for run in ("r", "", "r"):
            server.post("runs/load_run", {"agent": "a", "run": run})
        text = server.request("GET", "/metrics").body.decode()
    assert 'amlog_requests_total{operation="runs/load_run",status="200"} 2.0' in text
    assert 'amlog_requests_total{operation="runs/load_run",status="422"} 1.0' in text
    assert 'amlog_request_seconds_count{operation="runs/load_run"} 3.0' in text
    assert "amlog_open_streams 0.0" in text


def test_tls_protects_the_connection(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "key.pem")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    files = ("--cert", str(tmp_path / "cert.pem"), "--key", str(tmp_path / "key.pem"))
    with ServerProcess("memory:", tmp_path / "log", *files) as server:
        assert server.url.startswith("https://")
        context = ssl.create_default_context()
        context.load_verify_locations(cadata=authority.cert_pem.bytes().decode())
        connection = http.client.HTTPSConnection(server.host, server.port, context=context, timeout=PATIENCE)
        connection.request("GET", "/readyz", headers={"origin": server.url})
        assert connection.getresponse().status == 200
        connection.close()
        # A client without TLS gets no answer, and the server still runs.
        with pytest.raises((http.client.HTTPException, OSError)):
            server.request("GET", "/readyz")
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.parametrize(
    ("options", "message_"),
    [
        (("--host", "0.0.0.0"), "a server without tokens accepts only requests of this machine"),
        (("--host", "example.org"), "a server without tokens accepts only requests of this machine"),
        (("--cert", "x"), "--cert and --key belong together"),
        (("--user", "1"), "--user and --scope need --tenant"),
        (("--tenant", "a"), "no user or scope"),
        (("--cert", "missing", "--key", "lost"), "--cert missing and --key lost cannot be used: No such file"),
        (("--store", "http://127.0.0.1:1"), "--store is the URL of another server"),
    ],
)
def test_wrong_options_are_refused(options: tuple[str, ...], message_: str) -> None:
    ran = amlog.run("serve", "--store", "memory:", "--port", "0", *options)
    assert ran.status in (1, 2)
    assert message_ in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [("--help",), ("serve", "--help"), ("serve", "--store", "memory:")])
def test_only_a_server_needs_its_extra(arguments: tuple[str, ...]) -> None:
    program = (
        "import sys; sys.modules['starlette'] = None; from agent_memory_log.cli.main import main; sys.exit(main())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, check=False, text=True, timeout=PATIENCE
    )
    if "--help" in arguments:
        assert (ran.returncode, ran.stderr) == (0, "")
    else:
        assert ran.stderr == "amlog: amlog serve needs the extra server: pip install 'agent-memory-log[server]'\n"
        assert ran.returncode == 1


def test_a_host_of_another_machine_is_refused(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/runs.db"
    amlog.run("tokens", "create", "--agents", "support", "--store", store)
    for host, message_ in (
        ("no-such-host.invalid", "amlog: --host no-such-host.invalid: "),
        (
            "192.0.2.1",
            "amlog: cannot listen on 192.0.2.1 port 0: Cannot assign requested address; choose another --host",
        ),
    ):
        ran = amlog.run("serve", "--store", store, "--port", "0", "--host", host)
        assert (ran.status, ran.err.count("\n")) == (1, 1)
        assert ran.err.startswith(message_)


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with ServerProcess("memory:", tmp_path / "log") as server:
        ran = amlog.run("serve", "--store", "memory:", "--port", str(urlsplit(server.url).port))
    assert (ran.status, ran.err) == (
        1,
        f"amlog: cannot listen on 127.0.0.1 port {server.port}: Address already in use; choose another --port\n",
    )
