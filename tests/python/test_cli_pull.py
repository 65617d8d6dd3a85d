"""`pull` against a local server that misbehaves in every way known: nothing half ever gets the final name."""

import concurrent.futures
import json
import resource
import subprocess

import pytest

from conftest import environment_for, sha256

BODY = b"GGUF" + bytes(range(256)) * 4000


def final(tmp_path, name="toy.gguf"):
    return tmp_path / "home" / name


def leftovers(tmp_path):
    return sorted(path.name for path in (tmp_path / "home").rglob("*") if path.is_file())


def assert_one_line_error(done, *words):
    assert done.returncode == 1, (done.out, done.err)
    assert done.out == ""
    assert done.err.count("\n") == 1 and done.err.startswith("pocketlm: ")
    for word in words:
        assert word in done.err, done.err


# ---- plain addresses


def test_url_is_saved_under_its_file_name_and_the_path_is_printed(run, server, tmp_path):
    server.add("/dir/toy.gguf", BODY)
    done = run("pull", f"{server.url}/dir/toy.gguf")
    assert done.returncode == 0, done.err
    assert done.out == f"{final(tmp_path)}\n"
    assert final(tmp_path).read_bytes() == BODY
    assert leftovers(tmp_path) == ["toy.gguf"]
    assert "\r" not in done.err  # no progress bar without a terminal


def test_name_and_json(run, server, tmp_path):
    server.add("/toy.gguf", BODY)
    done = run("pull", f"{server.url}/toy.gguf", "--name", "mine", "--json")
    assert json.loads(done.out) == {"name": "mine", "path": str(final(tmp_path, "mine.gguf")), "bytes": len(BODY),
                                    "was_there": False}
    assert final(tmp_path, "mine.gguf").read_bytes() == BODY


def test_second_pull_transfers_nothing_and_force_transfers_again(run, server, tmp_path):
    server.add("/toy.gguf", BODY)
    assert run("pull", f"{server.url}/toy.gguf").returncode == 0
    count = len(server.requests)
    done = run("pull", f"{server.url}/toy.gguf")
    assert done.returncode == 0 and "already there" in done.err
    assert len(server.requests) == count
    assert run("pull", f"{server.url}/toy.gguf", "--force").returncode == 0
    assert len(server.requests) == count + 1


def test_fs_d2_transfer_cut_at_half_is_not_the_model_and_the_next_run_goes_on(run, server, tmp_path):
    half = len(BODY) // 2
    toy = server.add("/toy.gguf", BODY)
    toy.cuts = [half, 0, 0, 0]  # the first connection breaks at 50 %, the tries after it bring nothing
    done = run("pull", f"{server.url}/toy.gguf")
    assert_one_line_error(done, str(half), str(len(BODY)), "again")
    assert not final(tmp_path).exists()
    assert final(tmp_path, "toy.gguf.part").stat().st_size == half
    assert run("inspect", "toy").returncode == 1  # half a file is never taken for the model
    server.requests.clear()
    toy.cuts = []
    done = run("pull", f"{server.url}/toy.gguf")
    assert done.returncode == 0, done.err
    assert final(tmp_path).read_bytes() == BODY
    assert [headers.get("Range") for _, headers in server.requests] == [f"bytes={half}-"]
    assert leftovers(tmp_path) == ["toy.gguf"]


def test_cut_transfer_resumes_within_one_run(run, server, tmp_path):
    toy = server.add("/toy.gguf", BODY)
    toy.cuts = [1000, 5000]
    assert run("pull", f"{server.url}/toy.gguf").returncode == 0
    assert final(tmp_path).read_bytes() == BODY
    assert [headers.get("Range") for _, headers in server.requests] == [None, "bytes=1000-", "bytes=6000-"]


def test_server_that_ignores_ranges_sends_all_again(run, server, tmp_path):
    toy = server.add("/toy.gguf", BODY)
    toy.ranges = False
    toy.cuts = [1000]
    assert run("pull", f"{server.url}/toy.gguf").returncode == 0
    assert final(tmp_path).read_bytes() == BODY


def test_file_that_changed_between_two_runs_is_not_glued_together(run, server, tmp_path):
    toy = server.add("/toy.gguf", BODY)
    toy.cuts = [1000, 0, 0, 0]
    assert run("pull", f"{server.url}/toy.gguf").returncode == 1
    toy.cuts = []
    toy.body = b"GGUF" + BODY[::-1]
    toy.etag = '"v2"'
    assert run("pull", f"{server.url}/toy.gguf").returncode == 0
    assert final(tmp_path).read_bytes() == toy.body


def test_without_validator_and_checksum_a_cut_file_starts_over(run, server, tmp_path):
    toy = server.add("/toy.gguf", BODY)
    toy.etag = None
    toy.cuts = [1000, 0, 0, 0]
    assert run("pull", f"{server.url}/toy.gguf").returncode == 1
    toy.cuts = []
    toy.body = b"GGUF" + BODY[::-1]
    assert run("pull", f"{server.url}/toy.gguf").returncode == 0
    assert final(tmp_path).read_bytes() == toy.body


def test_stale_beginning_is_noticed_by_the_checksum_and_fetched_anew(run, server, tmp_path):
    server.add("/toy.gguf", BODY).etag = None
    (tmp_path / "home").mkdir()
    final(tmp_path, "toy.gguf.part").write_bytes(b"x" * 1000)
    done = run("pull", f"{server.url}/toy.gguf", "--sha256", sha256(BODY).upper())
    assert done.returncode == 0, done.err
    assert final(tmp_path).read_bytes() == BODY


def test_beginning_longer_than_the_file_starts_over(run, server, tmp_path):
    server.add("/toy.gguf", BODY)
    (tmp_path / "home").mkdir()
    final(tmp_path, "toy.gguf.part").write_bytes(b"x" * (len(BODY) + 5))
    assert run("pull", f"{server.url}/toy.gguf", "--sha256", sha256(BODY)).returncode == 0
    assert final(tmp_path).read_bytes() == BODY


def test_wrong_range_is_refused(run, server, tmp_path):
    toy = server.add("/toy.gguf", BODY)
    toy.cuts = [1000]
    toy.shift_range = 7
    assert_one_line_error(run("pull", f"{server.url}/toy.gguf"), "range")
    assert not final(tmp_path).exists()


def test_wrong_checksum(run, server, tmp_path):
    server.add("/toy.gguf", BODY)
    done = run("pull", f"{server.url}/toy.gguf", "--sha256", "0" * 64)
    assert_one_line_error(done, "SHA-256", "0" * 64, sha256(BODY))
    assert leftovers(tmp_path) == []


def test_declared_length_longer_than_the_body(run, server, tmp_path):
    toy = server.add("/toy.gguf", BODY)
    toy.declared_length = len(BODY) + 10
    assert_one_line_error(run("pull", f"{server.url}/toy.gguf"))
    assert not final(tmp_path).exists()


def test_without_a_length_only_a_checksum_can_tell_the_end(run, server, tmp_path):
    toy = server.add("/toy.gguf", BODY)
    toy.send_length = False
    assert_one_line_error(run("pull", f"{server.url}/toy.gguf"), "--sha256")
    assert not final(tmp_path).exists()
    assert run("pull", f"{server.url}/toy.gguf", "--sha256", sha256(BODY)).returncode == 0
    assert final(tmp_path).read_bytes() == BODY


def test_redirects_are_followed(run, server, tmp_path):
    server.add("/toy.gguf").redirect = f"{server.url}/real"
    server.add("/real", BODY)
    assert run("pull", f"{server.url}/toy.gguf").returncode == 0
    assert final(tmp_path).read_bytes() == BODY


def test_endless_redirects_and_other_protocols_fail(run, server, tmp_path):
    server.add("/toy.gguf").redirect = f"{server.url}/toy.gguf"
    assert_one_line_error(run("pull", f"{server.url}/toy.gguf"))
    (tmp_path / "local.gguf").write_bytes(BODY)
    server.add("/other.gguf").redirect = f"file://{tmp_path}/local.gguf"
    assert_one_line_error(run("pull", f"{server.url}/other.gguf"))
    assert leftovers(tmp_path) == []


def test_not_found_is_not_tried_again(run, server, tmp_path):
    assert_one_line_error(run("pull", f"{server.url}/none.gguf"), "404", "none.gguf")
    assert len(server.requests) == 1
    assert leftovers(tmp_path) == []


def test_server_error_is_tried_again(run, server, tmp_path):
    server.add("/toy.gguf", BODY).failures = [503, 500]
    assert run("pull", f"{server.url}/toy.gguf").returncode == 0
    assert final(tmp_path).read_bytes() == BODY


def test_nobody_listens(run):
    assert_one_line_error(run("pull", "http://127.0.0.1:9/toy.gguf"), "127.0.0.1:9")


def test_page_that_is_no_model(run, server, tmp_path):
    server.add("/toy.gguf", b"<html>please log in</html>")
    assert_one_line_error(run("pull", f"{server.url}/toy.gguf"), "GGUF")
    assert leftovers(tmp_path) == []


def test_passwords_and_queries_stay_out_of_messages(run, server):
    address = server.url.replace("http://", "http://user:secret@")
    done = run("pull", f"{address}/none.gguf?token=hidden")
    assert_one_line_error(done, "none.gguf")
    assert "secret" not in done.err and "hidden" not in done.err


@pytest.mark.parametrize("path", ["a/..%2F..%2Fevil.gguf", "%2Ftmp%2Fevil.gguf"])
def test_escaped_slashes_do_not_leave_the_folder(run, server, tmp_path, path):
    done = run("pull", f"{server.url}/{path}")
    assert done.returncode == 1
    assert not (tmp_path / "evil.gguf").exists() and leftovers(tmp_path) == []


def test_fs_d1_non_ascii_cache_folder(run, server, tmp_path):
    home = tmp_path / "Modèle_試験_Ключ"
    server.add("/toy.gguf", BODY)
    done = run("pull", f"{server.url}/toy.gguf", env={"POCKETLM_HOME": home})
    assert done.returncode == 0 and done.out == f"{home}/toy.gguf\n"
    assert (home / "toy.gguf").read_bytes() == BODY


def test_full_disk_is_a_clear_error(program, server, tmp_path):
    server.add("/toy.gguf", BODY)
    limit = len(BODY) // 3
    # Python ignores SIGXFSZ; handed on, a file beyond the limit becomes a failing write, as on a full disk.
    done = subprocess.run([program, "pull", f"{server.url}/toy.gguf"], env=environment_for(tmp_path / "home"),
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
                          restore_signals=False, capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    assert b"toy.gguf.part" in done.stderr and b"POCKETLM_HOME" in done.stderr and done.stderr.count(b"\n") == 1
    assert not final(tmp_path).exists()


def test_cache_that_cannot_be_a_folder(run, server, tmp_path):
    (tmp_path / "home").write_bytes(b"a file")
    server.add("/toy.gguf", BODY)
    assert_one_line_error(run("pull", f"{server.url}/toy.gguf"), "POCKETLM_HOME")


def test_pulls_at_the_same_time_transfer_once(run, server, tmp_path):
    server.add("/toy.gguf", BODY * 20)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        runs = list(pool.map(lambda _: run("pull", f"{server.url}/toy.gguf"), range(4)))
    assert [done.returncode for done in runs] == [0] * 4, [done.err for done in runs]
    assert final(tmp_path).read_bytes() == BODY * 20
    assert len(server.requests) == 1
    assert leftovers(tmp_path) == ["toy.gguf"]


# ---- Hugging Face


WEIGHTS = b"\x08\0\0\0\0\0\0\0{}      " * 1000


def add_repository(server, files, name="org/repo"):
    listing = []
    for path, body in files.items():
        entry = {"type": "file", "path": path, "size": len(body)}
        if path.endswith((".safetensors", ".gguf")):
            entry["lfs"] = {"oid": sha256(body), "size": len(body)}
        listing.append(entry)
        server.add(f"/{name}/resolve/main/{path}", body)
    listing.append({"type": "directory", "path": "sub"})
    server.add(f"/api/models/{name}/tree/main", json.dumps(listing).encode())
    return listing


REPOSITORY = {"README.md": b"#", "config.json": b"{}", "tokenizer.json": b"{\"a\": 1}", "pytorch_model.bin": b"x",
              "model.safetensors": WEIGHTS, "consolidated.safetensors": b"no"}


def test_hub_folder(run, server, tmp_path):
    add_repository(server, REPOSITORY)
    done = run("pull", "hf:org/repo", env={"HF_ENDPOINT": server.url})
    assert done.returncode == 0, done.err
    folder = final(tmp_path, "org/repo")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors", "tokenizer.json"]
    assert (folder / "model.safetensors").read_bytes() == WEIGHTS
    assert not final(tmp_path, "org/repo.part").exists()
    count = len(server.requests)
    assert run("pull", "hf:org/repo", env={"HF_ENDPOINT": server.url}).returncode == 0
    assert len(server.requests) == count


def test_hub_folder_with_shards(run, server, tmp_path):
    shards = {f"model-0000{i}-of-00002.safetensors": WEIGHTS for i in (1, 2)}
    add_repository(server, {**REPOSITORY, **shards, "model.safetensors.index.json": b"{}"})
    assert run("pull", "hf:org/repo", env={"HF_ENDPOINT": server.url}).returncode == 0
    names = {path.name for path in final(tmp_path, "org/repo").iterdir()}
    assert names == {"config.json", "tokenizer.json", "model.safetensors.index.json", *shards}


def test_hub_folder_cut_is_no_model_and_goes_on(run, server, tmp_path):
    add_repository(server, REPOSITORY)
    weights = server.resources["/org/repo/resolve/main/model.safetensors"]
    weights.cuts = [500, 0, 0, 0]
    assert run("pull", "hf:org/repo", env={"HF_ENDPOINT": server.url}).returncode == 1
    assert not final(tmp_path, "org/repo").exists()
    weights.cuts = []
    server.requests.clear()
    assert run("pull", "hf:org/repo", env={"HF_ENDPOINT": server.url}).returncode == 0
    assert (final(tmp_path, "org/repo") / "model.safetensors").read_bytes() == WEIGHTS
    assert "bytes=500-" in [headers.get("Range") for _, headers in server.requests]
    assert all("tokenizer.json" not in path for path, _ in server.requests)  # was whole already


def test_hub_weights_with_a_wrong_checksum(run, server, tmp_path):
    add_repository(server, REPOSITORY)
    server.resources["/org/repo/resolve/main/model.safetensors"].body = WEIGHTS[:-1] + b"!"
    done = run("pull", "hf:org/repo", env={"HF_ENDPOINT": server.url})
    assert_one_line_error(done, "SHA-256")
    assert not final(tmp_path, "org/repo").exists()


def test_hub_file_with_a_wrong_size(run, server, tmp_path):
    add_repository(server, {"toy.gguf": BODY})
    server.resources["/org/repo/resolve/main/toy.gguf"].body = BODY + b"!"
    done = run("pull", "hf:org/repo/toy.gguf", env={"HF_ENDPOINT": server.url})
    assert_one_line_error(done, str(len(BODY)), str(len(BODY) + 1))
    assert leftovers(tmp_path) == []


def test_hub_single_file_becomes_a_name(run, server, tmp_path):
    add_repository(server, {"toy.gguf": BODY})
    done = run("pull", "hf:org/repo/toy.gguf", "--json", env={"HF_ENDPOINT": server.url})
    assert done.returncode == 0, done.err
    assert json.loads(done.out)["name"] == "org/repo/toy"
    assert final(tmp_path, "org/repo/toy.gguf").read_bytes() == BODY


def test_hub_file_names_with_path_tricks_are_left_out(run, server, tmp_path):
    listing = add_repository(server, REPOSITORY)
    for path in ("../evil.safetensors", "/evil.safetensors", "a/../../evil.safetensors", "..\\evil.safetensors"):
        listing.append({"type": "file", "path": path, "size": 4})
    listing = [entry for entry in listing if entry["path"] != "model.safetensors"]  # so that all others are taken
    server.resources["/api/models/org/repo/tree/main"].body = json.dumps(listing).encode()
    assert run("pull", "hf:org/repo", env={"HF_ENDPOINT": server.url}).returncode == 0
    assert not [path for path in tmp_path.rglob("*") if "evil" in path.name]


@pytest.mark.parametrize("body", [b"", b"{", b"{}", b"[1, null, {\"path\": 3}]", b"[" * 100000])
def test_hub_listing_that_makes_no_sense(run, server, body):
    server.add("/api/models/org/repo/tree/main", body)
    assert_one_line_error(run("pull", "hf:org/repo", env={"HF_ENDPOINT": server.url}), "org/repo")


def test_hub_repository_of_gguf_files_says_which(run, server):
    add_repository(server, {"toy.gguf": BODY})
    done = run("pull", "hf:org/repo", env={"HF_ENDPOINT": server.url})
    assert_one_line_error(done, "hf:org/repo/toy.gguf")


def test_hub_token_is_sent_to_the_hub_only(run, server):
    add_repository(server, {"toy.gguf": BODY})
    elsewhere = f"{server.url.replace('127.0.0.1', 'localhost')}/elsewhere"
    server.add("/elsewhere", BODY)
    server.resources["/org/repo/resolve/main/toy.gguf"].redirect = elsewhere
    env = {"HF_ENDPOINT": server.url, "HF_TOKEN": "secret"}
    assert run("pull", "hf:org/repo/toy.gguf", env=env).returncode == 0
    sent = {path: headers.get("Authorization") for path, headers in server.requests}
    assert sent["/api/models/org/repo/tree/main"] == "Bearer secret"
    assert sent["/elsewhere"] is None


def test_unencrypted_hub_elsewhere_is_refused(run):
    assert_one_line_error(run("pull", "hf:org/repo", env={"HF_ENDPOINT": "http://example.invalid"}), "https")


def test_unknown_name_lists_the_known_ones(run):
    assert_one_line_error(run("pull", "nothing-like-it"), "smollm2-135m", "gemma3-270m", "hf:ORG/REPO")
