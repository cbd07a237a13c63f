"""Starts the built binaries for end-to-end tests."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import time

BIN = pathlib.Path(os.environ["ROOFTUNE_BIN_DIR"])
SOURCE = pathlib.Path(os.environ["ROOFTUNE_SOURCE_DIR"])


class Daemon:
    """One rooftuned on a socket in a folder of its own. `data` may be handed on to the next one."""

    def __init__(self, *flags, data=None, expect_start=True):
        self.dir = tempfile.TemporaryDirectory(prefix="rooftune-e2e-")
        self.data = data or f"{self.dir.name}/data"
        self.socket = f"{self.dir.name}/s"
        self.address = f"unix:{self.socket}"
        read, write = os.pipe()
        self.log = open(f"{self.dir.name}/log", "w+b")
        self.process = subprocess.Popen(
            [BIN / "rooftuned", "--listen", self.address, "--data-dir", self.data, "--ready-fd", str(write), *flags],
            pass_fds=(write,), stdout=self.log, stderr=self.log)
        os.close(write)
        with os.fdopen(read) as ready:
            listening = ready.read()  # ends when the daemon has written its address, or is gone
        if expect_start and not listening:
            raise RuntimeError("rooftuned did not start: " + self.output())

    def output(self):
        self.log.flush()
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def cli(self, *args, check=True, timeout=120):
        """Runs `rooftune`; returns the completed process."""
        done = subprocess.run([BIN / "rooftune", "--address", self.address, *args], capture_output=True, text=True,
                              timeout=timeout)
        if check and done.returncode != 0:
            raise AssertionError(f"rooftune {' '.join(args)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}\n{self.output()}")
        return done

    def json(self, *args, **options):
        return json.loads(self.cli("--json", *args, **options).stdout)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self, limit_s=10):
        """SIGTERM; returns the exit code and the seconds it took."""
        begin = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=limit_s)
        return code, time.monotonic() - begin

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()
        self.dir.cleanup()


def fake_device(folder, **fields):
    """Writes a fake device's script; `rules` is textproto. Returns the flag."""
    path = pathlib.Path(folder) / "fake.txtpb"
    text = ["profile: 'h200-sxm'", "name: 'test'"]
    text += [f"{key}: {value!r}" for key, value in fields.items() if key != "rules"]
    path.write_text("\n".join(text) + "\n" + fields.get("rules", ""))
    return f"fake:{path}"
