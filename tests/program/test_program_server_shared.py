"""`scaffolding serve --database`: several servers of one queue, over a PostgreSQL of its own. SF_SHARED_KILLS makes the
test of crashes longer (Makefile)."""

import concurrent.futures
import contextlib
import os
import random
import re
import signal
import subprocess
import time

import pytest
from postgres_server import postgres
from served import Server, serving, skip_without_server

APPLE = {"prompt": "red apple, noto", "num_inference_steps": 2, "seed": 7}
LONG = {"prompt": "red apple, noto", "num_inference_steps": 400, "seed": 7}
LEASE = 2


@pytest.fixture(scope="module")
def database(program, build_dir):
    skip_without_server(program, build_dir)
    with postgres() as running:
        yield running


@pytest.fixture
def two(database, build_dir, tmp_path):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(serving(build_dir, tmp_path / name, *options(database))) for name in ("a", "b")]
    database.sql("TRUNCATE scaffolding.jobs, scaffolding.files CASCADE")


def options(database):
    return ["--database", database.address, "--lease", LEASE]


def post(server, **more):
    status, job, _ = server.post("/api/v1/jobs", {**APPLE, **more})
    assert status in (200, 201, 202), job
    return job["id"]


def events(server, job, seconds=60):
    """The names of a job's events, until it is over."""
    _, text, _ = server.get(f"/api/v1/jobs/{job}/events", timeout=seconds)
    return [line[7:] for line in text.decode().splitlines() if line.startswith("event: ")]


def wait_for(what, seconds=30):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := what():
            return found
        time.sleep(0.05)
    raise AssertionError("it did not happen in time")


def test_each_job_ends_once_wherever_it_was_posted(two, database):
    jobs = [post(two[i % 2], seed=i, count=1 + i % 2) for i in range(16)]
    for i, job in enumerate(jobs):
        for server in two:
            view = server.wait(job)
            assert view["state"] == "done" and [p["seed"] for p in view["pictures"]] == [i, i + 1][: 1 + i % 2]
    pictures = [server.get(f"/api/v1/pictures/{jobs[0]}-0")[1] for server in two]
    assert pictures[0] == pictures[1] and pictures[0].startswith(b"\x89PNG")
    assert database.sql("SELECT count(*), count(DISTINCT (job, place)) FROM scaffolding.pictures") == ["24|24"]
    ran = [server.told().count('"state":"done"') for server in two]
    assert sum(ran) == 16 and min(ran) > 0, ran


def test_each_picture_is_told_once_and_before_the_end_at_both(two):
    jobs = [post(two[i % 2], seed=i, count=2) for i in range(4)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        heard = [pool.submit(events, server, job) for job in jobs for server in two]
        for names in heard:
            names = names.result()
            assert names.count("picture") == 2 and names[-1] == "done" and names.count("done") == 1, names


def test_events_and_cancelling_of_a_job_that_runs_at_the_other(two):
    job = post(two[0], **LONG)
    two[0].wait(job, states=("running",))
    wait_for(lambda: two[1].get(f"/api/v1/jobs/{job}")[1]["progress"] > 0)
    here = next(i for i in (0, 1) if f'"{job}"' not in two[i].told())
    with concurrent.futures.ThreadPoolExecutor() as pool:
        heard = [pool.submit(events, server, job) for server in two]
        time.sleep(0.3)
        # Asked of both, one of which does not run it.
        assert two[here].request("DELETE", f"/api/v1/jobs/{job}")[0] in (200, 202, 204)
        for names in heard:
            names = names.result()
            assert names[-1] == "cancelled" and "step" in names and names.count("cancelled") == 1
    for server in two:
        assert server.get(f"/api/v1/jobs/{job}")[1]["state"] == "cancelled"
        assert server.request("DELETE", f"/api/v1/jobs/{job}")[0] < 500


def test_a_key_makes_one_job_at_both(two):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:

        def ask(i):
            return two[i % 2].post("/api/v1/jobs", APPLE, headers={"Idempotency-Key": "one"})[1]["id"]

        assert len(set(pool.map(ask, range(16)))) == 1
    assert two[1].post("/api/v1/jobs", {**APPLE, "prompt": "a car"}, headers={"Idempotency-Key": "one"})[0] == 409


def test_hostile_texts_are_values(two, database):
    for text in ["'; DROP TABLE jobs; --", "\\'; SELECT 1", "a\0b", "\ud83d\ude00 é", "$1 ? ?1", "%s'\"", "\x01 \x7f"]:
        end = two[1].wait(post(two[0], prompt=text))
        # A picture's file cannot say a prompt with NUL: that job says so.
        assert end["state"] == "done" or ("\0" in text and "zero byte" in end["error"]), end
        assert two[1].get("/api/v1/jobs?limit=5")[0] == 200
    for words in ["%27%3B--", "%00", "%ff%fe", "a%27%20|%20!", "(", ":*", "%5C"]:
        assert two[0].get(f"/api/v1/jobs?words={words}")[0] < 500
        assert two[0].get(f"/api/v1/pictures?words={words}")[0] < 500
    assert database.sql("SELECT count(*) FROM scaffolding.jobs") == ["7"]


def test_kills_lose_no_job_and_double_none(database, build_dir, tmp_path):
    kills = int(os.environ.get("SF_SHARED_KILLS", "3"))
    drawn, accepted = random.Random(kills), []
    with contextlib.ExitStack() as stack:
        servers = [Server(build_dir, tmp_path / str(i), *options(database)) for i in range(2)]
        stack.callback(lambda: [s.stop() for s in servers])
        for n in range(kills):
            accepted += [post(servers[i % 2], seed=len(accepted)) for i in range(6)]
            time.sleep(drawn.random() * 0.5)
            victim = drawn.randrange(2)
            servers[victim].stop(signal.SIGKILL)
            accepted.append(post(servers[1 - victim], seed=len(accepted)))
            servers[victim] = Server(build_dir, tmp_path / str(victim), *options(database))
        for job in accepted:
            end = servers[0].wait(job, seconds=120)
            assert end["state"] == "done" or "twice" in end["error"], end
        done = database.sql("SELECT count(*) FROM scaffolding.jobs WHERE state = 'done'")
        assert database.sql(
            "SELECT count(*), count(DISTINCT job) FROM scaffolding.pictures p JOIN scaffolding.jobs j "
            "ON j.id = p.job WHERE j.state = 'done'"
        ) == [f"{done[0]}|{done[0]}"]
        assert database.sql("SELECT count(*) FROM scaffolding.jobs") == [str(len(accepted))]
        print(f"\n{kills} kills, {len(accepted)} jobs, {done[0]} done")
    database.sql("TRUNCATE scaffolding.jobs, scaffolding.files CASCADE")


def test_a_database_that_is_gone_and_comes_back(two, database):
    job = post(two[0], **{**LONG, "num_inference_steps": 60})
    two[0].wait(job, states=("running",))
    database.stop()
    for server in two:
        status, body, headers = server.post("/api/v1/jobs", APPLE)
        assert status == 503 and headers["Retry-After"] and "database" in body["error"]["message"], body
        status, why, headers = server.get("/readyz")
        assert status == 503 and b"database" in why and headers["Retry-After"]
        assert server.get("/healthz")[0] == 200
    time.sleep(LEASE + 1)  # longer than the lease: nobody takes it over for that
    database.start()
    for server in two:
        wait_for(lambda server=server: server.get("/readyz")[0] == 200)
        assert server.wait(job)["state"] == "done"
        assert server.wait(post(server))["state"] == "done"
        assert '"taken over"' not in server.told()


def test_what_was_answered_outlives_a_crash_of_the_database(two, database):
    """Its log is written at commits alone here, not by itself a moment later."""
    database.sql("ALTER SYSTEM SET wal_writer_delay = '10s'")
    database.sql("SELECT pg_reload_conf()")
    try:
        running = post(two[0], **LONG)
        for what in ("accepted", "cancelled"):
            wait_for(lambda: all(server.get("/readyz")[0] == 200 for server in two))
            job = post(two[1], **LONG)
            if what == "cancelled":
                two[0].wait(job, states=("waiting", "running"))
                database.sql("SELECT pg_switch_wal()")  # that it was accepted is on the disk anyway
                assert two[0].request("DELETE", f"/api/v1/jobs/{job}")[0] in (200, 202, 204)
            database.stop("immediate")
            database.start()
            rows = database.sql(f"SELECT state, cancelled FROM scaffolding.jobs WHERE id = '{job}'")
            asked = what == "cancelled"
            assert len(rows) == 1 and (rows[0].startswith("cancelled") or rows[0].endswith("1")) == asked, (what, rows)
        for server in two:
            wait_for(lambda server=server: server.get("/readyz")[0] == 200)
        assert two[0].get(f"/api/v1/jobs/{running}")[0] == 200
    finally:
        database.sql("ALTER SYSTEM RESET wal_writer_delay")
        database.sql("SELECT pg_reload_conf()")


def test_a_database_that_is_slow_is_waited_for_and_not_for_ever(two, database):
    locker = subprocess.Popen(
        [
            database.programs / "psql",
            "-X",
            "-q",
            database.address,
            "-c",
            "BEGIN; LOCK TABLE scaffolding.jobs IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(7); COMMIT",
        ],
        stdout=subprocess.DEVNULL,
    )
    told = set()
    time.sleep(0.5)
    while locker.poll() is None:  # first in the row or behind another statement that waits
        begin = time.monotonic()
        status, body, headers = two[0].post("/api/v1/jobs", APPLE)
        assert status == 202 or (status == 503 and headers["Retry-After"]), body
        assert time.monotonic() - begin < 12
        told.add(status)
        time.sleep(0.1)
    assert 503 in told
    for server in two:
        wait_for(lambda server=server: server.get("/readyz")[0] == 200)
        assert server.wait(post(server))["state"] == "done"


def test_a_database_that_hangs_holds_up_nobody_for_long(two, database):
    post(two[0])
    with database.hanging(), concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(two[0].post, "/api/v1/jobs", APPLE) for _ in range(6)]
        time.sleep(0.3)
        for _ in range(10):  # whoever looks whether the process lives does not wait behind them
            begin = time.monotonic()
            assert two[0].get("/healthz")[0] == 200 and time.monotonic() - begin < 1
            time.sleep(0.3)
        for answer in asked:
            status, body, headers = answer.result()
            assert status == 503 and headers["Retry-After"], body
    for server in two:
        wait_for(lambda server=server: server.get("/readyz")[0] == 200)
        assert server.wait(post(server))["state"] == "done"


def test_what_one_server_keeps_the_other_shows(two, database):
    """Favourites, search, removal, signed addresses: one history."""
    apple, car = post(two[0]), post(two[1], prompt="blue car, noto", seed=8)
    for server in two:
        assert server.wait(apple)["state"] == server.wait(car)["state"] == "done"
        for words, found in (("apple", apple), ("CAR", car), ("blue%20ca", car)):
            status, page, _ = server.get(f"/api/v1/pictures?words={words}")
            assert [p["id"] for p in page["pictures"]] == [f"{found}-0"], page
        assert server.get("/api/v1/pictures?words=boat")[1]["pictures"] == []
    assert two[0].request("PATCH", f"/api/v1/pictures/{apple}-0", {"favourite": True})[0] == 200
    page = two[1].get("/api/v1/pictures?favourites=true")[1]
    assert [p["id"] for p in page["pictures"]] == [f"{apple}-0"]
    made = two[0].post(
        "/v1/images/generations", {"prompt": "red apple", "n": 1, "size": "128x128", "response_format": "url"}
    )[1]
    path = "/" + made["data"][0]["url"].split("/", 3)[3]
    assert two[1].get(path)[1] == two[0].get(path)[1] and two[1].get(path)[0] == 200
    assert two[1].get(path[:-1] + ("0" if path[-1] != "0" else "1"))[0] in (401, 403, 404)
    assert two[1].request("DELETE", f"/api/v1/pictures/{car}-0")[0] in (200, 204)
    assert two[0].get(f"/api/v1/pictures/{car}-0")[0] == 404
    assert database.sql(f"SELECT count(*) FROM scaffolding.files WHERE name LIKE '{car}%'") == ["0"]


def test_a_session_is_known_to_both_and_clients_see_their_own(database, build_dir, tmp_path, program):
    tokens = tmp_path / "tokens"
    words = []
    with open(tokens, "w") as file:
        for name in ("ann", "ben"):
            made = program("serve", "--new-token", name)
            file.write(made.stdout)
            words.append(re.search(r"is (\S{43})$", made.stderr, re.M)[1])
    with contextlib.ExitStack() as stack:
        two = [
            stack.enter_context(serving(build_dir, tmp_path / name, *options(database), "--tokens", tokens))
            for name in ("a", "b")
        ]
        ann, ben = ({"Authorization": f"Bearer {word}"} for word in words)
        status, _, headers = two[0].post("/api/v1/session", {"token": words[0]})
        assert status < 300
        cookie = {"Cookie": headers["Set-Cookie"].split(";")[0]}
        job = two[0].post("/api/v1/jobs", APPLE, headers=ann)[1]["id"]
        wait_for(lambda: two[1].get(f"/api/v1/jobs/{job}", headers=cookie)[1].get("state") == "done")
        assert two[1].get(f"/api/v1/jobs/{job}", headers=ben)[0] == 404
        assert two[1].get("/api/v1/pictures", headers=ben)[1]["pictures"] == []
    database.sql("TRUNCATE scaffolding.jobs, scaffolding.files CASCADE")


def test_retention_removes_rows_and_files(database, build_dir, tmp_path):
    with serving(build_dir, tmp_path / "a", *options(database), "--keep-pictures", 3) as server:
        for i in range(6):
            assert server.wait(post(server, seed=i))["state"] == "done"
        wait_for(lambda: database.sql("SELECT count(*) FROM scaffolding.pictures") == ["3"])
        assert database.sql("SELECT count(*) FROM scaffolding.files") == ["3"]
    database.sql("TRUNCATE scaffolding.jobs, scaffolding.files CASCADE")


def test_an_address_that_is_none_is_refused(program, tmp_path):
    done = program("serve", "--data", tmp_path / "d", "--port", 0, "--database", "mysql://a")
    assert done.returncode != 0 and "--database: must be postgresql://user@host/name" in done.stderr
    done = program("serve", "--data", tmp_path / "d", "--port", 0, "--database", "postgresql://a@127.0.0.1:1/b")
    assert done.returncode != 0 and "cannot connect to the database" in done.stderr
    missing = {**os.environ, "SF_POSTGRES_LIBRARY": str(tmp_path / "none.so")}
    done = program("serve", "--data", tmp_path / "d", "--port", 0, "--database", "postgresql://a@b/c", env=missing)
    assert done.returncode != 0 and "libpq-dev" in done.stderr
