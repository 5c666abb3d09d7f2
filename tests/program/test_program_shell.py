"""What the program says about itself: help, examples, the man page, and completions for shells."""

import re
import shlex
import shutil
import subprocess

import pytest
from drawn_icons import refused


@pytest.fixture(scope="module")
def commands(program):
    listing = program("--help").stdout.split("Subcommands:")[1]
    return re.findall(r"^  (\S+)", listing, re.MULTILINE)


def test_every_command_teaches_by_examples(program, commands):
    assert len(commands) >= 15
    for command in commands:
        text = program(command, "--help").stdout
        assert re.search(r"^Examples?:\n  scaffolding " + command, text, re.MULTILINE), command
        assert program("help", command).stdout.split("\n")[0] == text.split("\n")[0], command


def test_every_example_is_understood(program):
    examples = program("help", "--examples").stdout.splitlines()
    assert len(examples) >= 30
    for line in examples:
        words = shlex.split(re.split(r" {3,}", line)[0])  # what it shows stands behind some spaces
        assert words[0] == "scaffolding"
        done = program("--parse-only", *words[1:])
        assert done.returncode == 0 and done.stdout == "", (line, done.stderr)


def test_what_is_not_understood_is_one_line(program, model):
    refused(program("--parse-only", "txt2img", "x", "--stepz", 3), "--stepz")
    refused(program("txt2img", "x", "--steps", "many"), "scaffolding txt2img --help tells more")
    refused(program("paint", "x"), "paint")
    refused(program(), "subcommand")
    refused(program("help", "paint"), "help: there is no command 'paint'")
    refused(program("completion", "powershell"), "completion: there are bash, zsh and fish")
    refused(program("ops", "sofmax"), "there is no op 'sofmax'")


def test_the_man_page_names_every_command_and_option(program, commands, tmp_path):
    assert program("help", "--man", "-o", tmp_path / "scaffolding.1").returncode == 0
    page = (tmp_path / "scaffolding.1").read_text()
    assert page.startswith(".TH SCAFFOLDING 1")
    for command in commands:
        assert ".SS scaffolding " + command.replace("-", "\\-") + "\n" in page
    for option in ("negative\\-prompt", "save\\-steps", "guidance\\-rescale"):
        assert option in page
    for section in ("NAME", "SYNOPSIS", "EXIT STATUS", "ENVIRONMENT"):
        assert f".SH {section}\n" in page
    if shutil.which("man"):
        done = subprocess.run(
            ["man", "--warnings", "-l", tmp_path / "scaffolding.1"],
            capture_output=True,
            text=True,
            env={"LC_ALL": "C", "MANWIDTH": "100"},
        )
        assert done.returncode == 0 and done.stderr == ""


def completed(script, line):
    """What bash offers for the last word of a command line."""
    words = line.split(" ")
    quoted = " ".join(map(shlex.quote, words))
    setup = (
        f"source {shlex.quote(str(script))}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _scaffolding; "
        f"printf '%s\\n' \"${{COMPREPLY[@]}}\""
    )
    return subprocess.run(["bash", "-c", setup], capture_output=True, text=True, check=True).stdout.split()


def test_bash_completes_commands_options_and_values(program, commands, tmp_path):
    script = tmp_path / "scaffolding.bash"
    assert program("completion", "bash", "--output", script).returncode == 0
    assert set(completed(script, "scaffolding ")) == {*commands, "--help"}
    assert completed(script, "scaffolding txt") == ["txt2img", "txt2vid"]
    assert completed(script, "scaffolding txt2img --guid") == ["--guidance", "--guidance-rescale"]
    assert "dpm++2m-karras" in completed(script, "scaffolding txt2img --sampler dpm")
    assert completed(script, "scaffolding interpolate a b --dtype b") == ["bfloat16"]
    assert completed(script, "scaffolding completion f") == ["fish"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completions_are_programs_of_their_shell(program, tmp_path, shell):
    text = program("completion", shell).stdout
    assert "txt2img" in text and "negative-prompt" in text
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    (tmp_path / "script").write_text(text)
    done = subprocess.run([shell, "-n", tmp_path / "script"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_the_build_has_written_them(build_dir):
    if not (build_dir / "share/scaffolding.1").exists():
        pytest.skip("only the program was built")
    assert {"scaffolding.bash", "_scaffolding", "scaffolding.fish", "scaffolding.1"} <= {
        p.name for p in (build_dir / "share").iterdir()
    }
