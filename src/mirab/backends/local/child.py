"""Begin a command as the right user, in its own session, with nothing inherited. Standard library only."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import termios

from mirab.backends.local import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import NoReturn

CANNOT_RUN = 126
NOT_FOUND = 127
"""What shells say of a command that is there but cannot be run, and of one that is not there."""
OOM_FIRST = b"300"
"""When memory runs out, the kernel takes a run's own processes before anything else."""


class LaunchError(Exception):
    """The command could not be begun: a sentence for its owner, and the exit code that a shell would give."""

    def __init__(self, sentence: str, code: int = CANNOT_RUN) -> None:
        super().__init__(sentence)
        self.code = code


class Identity:
    """The Unix user that a run belongs to; (None, None) is the user of this process."""

    def __init__(self, uid: int | None, gid: int | None) -> None:
        self.uid, self.gid = uid, gid
        self.groups: list[int] = []
        self.foreign = uid is not None and os.geteuid() == 0 and uid != 0
        if self.foreign and uid is not None:
            self.gid, self.groups = groups_of(uid, gid)

    def become(self) -> None:
        """For good, with all groups. There is no way back."""
        if self.foreign and self.uid is not None and self.gid is not None:
            os.setgroups(self.groups)
            os.setresgid(self.gid, self.gid, self.gid)
            os.setresuid(self.uid, self.uid, self.uid)

    @contextlib.contextmanager
    def acting(self) -> Iterator[None]:
        """For a while: what is opened here is opened with the user's rights, not with root's."""
        if not self.foreign or self.uid is None or self.gid is None:
            yield
            return
        before = os.getgroups()
        os.setgroups(self.groups)
        os.setegid(self.gid)
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(before)

    def give(self, path: str) -> None:
        """Make a file (or socket) theirs."""
        if self.foreign and self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def groups_of(uid: int, gid: int | None) -> tuple[int, list[int]]:
    """Main group and all groups of a user; a user whom the system does not know has none but the given."""
    import pwd

    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        main = uid if gid is None else gid
        return main, [main]
    main = entry.pw_gid if gid is None else gid
    return main, os.getgrouplist(entry.pw_name, main)


def open_output(path: str, append: bool, who: Identity) -> int:
    """Open a run's output with its user's rights. Missing folders are made; what others append is not overwritten.

    Raises:
        LaunchError: it cannot be written there.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
    try:
        with who.acting():
            os.makedirs(os.path.dirname(path) or "/", mode=0o755, exist_ok=True)
            descriptor = os.open(path, flags | (0 if append else os.O_TRUNC), 0o644)
    except OSError as error:
        raise LaunchError(f"cannot write the output file {path}: {reason(error)}") from None
    os.set_blocking(descriptor, True)
    return descriptor


def check_folder(cwd: str, outputs: Sequence[str], who: Identity) -> None:
    """A working directory that is not there is not made for the sake of an output below it: it was a slip of the pen.

    Raises:
        LaunchError: it is not there.
    """
    if any(path.startswith(f"{cwd.rstrip('/')}/") for path in outputs):
        with who.acting():
            if not os.path.isdir(cwd):
                raise explain("cwd", errno.ENOENT, "", cwd)


def reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


class Launch:
    """A command that is being begun: its process, and the pipe on which it says that it could not."""

    def __init__(
        self,
        argv: Sequence[str],
        cwd: str,
        environment: Mapping[str, str],
        who: Identity,
        streams: tuple[int, int, int],
        terminal: bool = False,
    ) -> None:
        """Fork. Streams: what becomes standard input, output and error. `terminal`: they are one, to be controlled."""
        self.argv, self.cwd = argv, cwd
        self.trouble, saying = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            become_command(argv, cwd, environment, who, streams, terminal, saying, parent)
        os.close(saying)

    def verdict(self) -> LaunchError | None:
        """After the pipe has become readable: None if the command runs, else why it does not."""
        said = os.read(self.trouble, 4096)
        os.close(self.trouble)
        if not said:
            return None
        stage, number = json.loads(said)
        return explain(stage, number, self.argv[0], self.cwd)


def explain(stage: str, number: int, program: str, cwd: str) -> LaunchError:
    why = os.strerror(number).lower()
    if stage == "cwd":
        return LaunchError(f"cannot enter the working directory {cwd}: {why}")
    if stage == "user":
        return LaunchError(f"cannot become the user of this run: {why}")
    if number == errno.ENOENT and os.path.isabs(program) and os.path.exists(program):
        return LaunchError(f"cannot run {program}: the interpreter named in its first line does not exist", NOT_FOUND)
    if number in (errno.ENOENT, errno.ENOTDIR):
        return LaunchError(f"cannot run {program!r}: no such command", NOT_FOUND)
    if number == errno.E2BIG:
        return LaunchError(f"cannot run {program!r}: its arguments and environment are too large together")
    if number == errno.ENOEXEC:
        return LaunchError(
            f"cannot run {program!r}: it is no program, and a script needs a first line such as #!/bin/sh"
        )
    return LaunchError(f"cannot run {program!r}: {why}")


def become_command(
    argv: Sequence[str],
    cwd: str,
    environment: Mapping[str, str],
    who: Identity,
    streams: tuple[int, int, int],
    terminal: bool,
    saying: int,
    parent: int,
) -> NoReturn:
    """In the forked process: from here to the command. Whatever fails is said on the pipe; nothing returns."""
    stage = "run"
    try:
        os.setsid()
        wire(streams, terminal)
        fresh_signals()
        prefer_as_victim()
        stage = "user"
        who.become()
        processes.die_with_parent()
        if os.getppid() != parent:
            os._exit(CANNOT_RUN)
        os.umask(0o022)
        stage = "cwd"
        os.chdir(cwd)
        stage = "run"
        execute(list(argv), dict(environment))
    except OSError as error:
        say(saying, stage, error.errno or 0)
    except BaseException:
        say(saying, stage, errno.EINVAL)
    finally:
        os._exit(CANNOT_RUN)


def execute(argv: list[str], environment: dict[str, str]) -> None:
    """Become the command, looked for as a shell does. Imports nothing: the user may not read Python's own files.

    Raises:
        OSError: no such command (ENOENT), or the first that was found cannot be run.
    """
    if "/" in argv[0]:
        os.execve(argv[0], argv, environment)
    trouble = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for folder in environment.get("PATH", os.defpath).split(":"):
        try:
            os.execve(f"{folder or '.'}/{argv[0]}", argv, environment)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR) and trouble.errno == errno.ENOENT:
                trouble = error
    raise trouble


def say(pipe: int, stage: str, number: int) -> None:
    with contextlib.suppress(OSError):
        os.write(pipe, json.dumps([stage, number]).encode())


def wire(streams: tuple[int, int, int], terminal: bool) -> None:
    """Make the streams 0, 1 and 2. They may be any numbers above 2."""
    for target, source in enumerate(streams):
        os.dup2(source, target)
    if terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def fresh_signals() -> None:
    """A command begins with nothing ignored and nothing blocked: Python ignores SIGPIPE, and that is inherited."""
    for number in signal.valid_signals():
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def prefer_as_victim() -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(OOM_FIRST)


def spare_from_memory_killer() -> None:
    """Where we may: the shim is small, and the last that should go."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
        file.write(b"-900")
