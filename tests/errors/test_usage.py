"""Bad usage is one clear line and exit code 2, in every command."""

import pytest

from fusesolve.cli.app import COMMANDS


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["plam"], "No such command 'plam'. Did you mean 'plan'? (see `fusesolve --help`)"),
        (["plan"], "Missing option '--hw' (see `fusesolve plan --help`)"),
        (["plan", "--hw"], "Option '--hw' requires an argument (see `fusesolve --help`)"),
        (["plan", "--hw", "h100", "--bogus"], "No such option: --bogus"),
        (["plan", "--hw", "h100", "--format", "xml"], "'xml' is not one of 'table', 'json'"),
        (["plan", "--hw", "h100", "--launch", "queue"], "'queue' is not one of 'stream', 'graph'"),
        (["plan", "--hw", "h100", "--implementation", "x"], "'x' is not one of 'best', 'library', 'generated'"),
        (["plan", "--hw", "h100", "--time-limit", "soon"], "Invalid value for '--time-limit'"),
        (["plan", "--hw", "h100", "--seed", "1.5"], "Invalid value for '--seed'"),
        (["plan", "a", "b", "--hw", "h100"], "unexpected extra argument"),
        (["plan", "--hw", "h100", "--streams", "0"], "--streams 0: expected an integer of at least 1"),
        (["plan", "--hw", "h100", "--streams", "999"], "streams 999: expected an integer from 1 to 128"),
        (["plan", "--hw", "mobile-npu", "--streams", "2"], "is a npu and runs one command at a time"),
        (["plan", "--hw", "mobile-npu", "--simulate", "events"], "is a npu and runs one command at a time"),
        (["plan", "--hw", "h100", "--time-limit", "0"], "--time-limit 0: expected a number above 0"),
        (["plan", "--hw", "h100", "--workers", "0"], "--workers 0: expected an integer of at least 1"),
        (["plan", "--hw", "h100", "--max-memory", "12 GHz"], "--max-memory: '12 GHz' is hertz"),
        (["plan", "--hw", "h100", "--bind", "batch"], "--bind 'batch': expected DIM=VALUE"),
        (["plan", "--hw", "h100", "--together", "a"], "--together 'a': expected at least two different operator names"),
        (["plan", "--hw", "h100", "--apart", "a,"], "--apart 'a,': expected at least two different operator names"),
        (["plan", "--hw", "h100", "--pins", "no_such.json"], "cannot read no_such.json: No such file or directory"),
        (["explain", "--hw", "h100"], "explain needs one of --between A B and --group N"),
        (["explain", "--hw", "h100", "--between", "a", "b", "--group", "1"], "explain needs one of"),
        (["explain", "--hw", "h100", "--between", "a"], "'--between' requires 2 arguments"),
        (["schema", "plam"], "there is no schema 'plam'; the schemas are plan, graph, hardware"),
        (["profiles"], "Missing command (see `fusesolve profiles --help`)"),
        (["profiles", "lst"], "No such command 'lst'. Did you mean 'list'"),
        (["profiles", "show"], "Missing argument 'PROFILE'"),
        (["profiles", "check"], "Missing argument 'FILE...'"),
        (["graph", "convert", "gpt2_block"], "Missing option"),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else "",
)
def test_bad_usage_is_one_line_and_exit_2(cli, argv, message):
    done = cli(*argv)
    assert (done.code, done.out) == (2, "")
    assert message in done.error


PROMISED = ("compare", "codegen", "validate", "whatif", "accuracy", "calibrate", "diff")


@pytest.mark.parametrize("command", [name for name in PROMISED if name not in COMMANDS])
def test_commands_that_are_not_there_yet_are_absent_not_stubs(cli, command):
    done = cli(command)
    assert done.code == 2
    assert done.error.startswith(f"No such command '{command}'")


def test_no_arguments_show_the_help(cli):
    done = cli()
    assert done.code == 0
    assert "plan" in done.out
    assert "--version" in done.out
    assert done.err == ""


def test_every_command_teaches_with_an_example(cli):
    for argv in (["plan"], ["explain"], ["schema"], ["profiles", "list"], ["profiles", "check"], ["graph", "convert"]):
        done = cli(*argv, "--help")
        assert done.code == 0
        assert f"fusesolve {argv[0]}" in done.out.rpartition("Example")[2]


def test_the_version(cli):
    from fusesolve import __version__

    assert cli("--version").out == f"fusesolve {__version__}\n"
