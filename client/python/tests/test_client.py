import os
import pathlib
import tempfile
import unittest
import unittest.mock

import grpc

import fakes
import test_cublaslt
import rooftune
from rooftune import _schema, client as client_module


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.fake = fakes.FakeDaemon()
        self.addCleanup(self.fake.close)
        self.client = rooftune.Client(self.fake.address, device="cuda:0")
        self.addCleanup(self.client.close)
        self.record = fakes.gemm_record()
        self.fake.handlers["GetBestConfig"] = lambda request, context: _schema.message("GetBestConfigResponse")(
            record=self.record, match=1, generation=7)
        self.fake.handlers["GetKernel"] = self.send_kernel
        self.binary = fakes.BINARY

    def send_kernel(self, request, context):
        part = _schema.message("GetKernelResponse")
        yield part(record=self.record)
        for i in range(0, len(self.binary), 7):
            yield part(chunk=self.binary[i:i + 7])

    def test_best(self):
        record = self.client.best("gemm", m=8, n=16, k=32, dtype="bf16", min_evidence="verified", miss="tune_async")
        self.assertEqual((record.evidence_name, record.match, record.generation), ("MEASURED", "EXACT", 7))
        self.assertEqual((record.config, record.time_us), ({"split_k": 2}, 168.4))
        self.assertEqual(record.to_dict()["artifact_digest"], record.digest)
        request = self.fake.requests[0]
        self.assertEqual((request.op, request.device), ("gemm m=8 n=16 k=32 dtype=bf16", "cuda:0"))
        self.assertEqual((request.min_evidence, request.miss_policy), (3, 3))

    def test_a_prediction_is_no_time(self):
        self.record.ClearField("measurement")
        self.assertIsNone(self.client.best("gemm", m=8).time_us)

    def test_values_of_a_newer_daemon_do_not_break(self):
        self.record.evidence = 99
        self.assertEqual(self.client.best("gemm", m=8).evidence_name, "99")

    def test_misspelled_choice(self):
        with self.assertRaisesRegex(ValueError, "'verifed' is not one of: estimated, compiled"):
            self.client.best("gemm", m=8, min_evidence="verifed")
        self.assertEqual(self.fake.requests, [])

    def test_error_has_reason_and_facts(self):
        self.fake.handlers["GetBestConfig"] = fakes.fail(grpc.StatusCode.NOT_FOUND, "NOT_TUNED", "not tuned yet",
                                                         {"command": "rooftune tune x"})
        with self.assertRaises(rooftune.RooftuneError) as caught:
            self.client.best("gemm", m=8)
        error = caught.exception
        self.assertEqual((error.code, error.reason, error.facts), ("NOT_FOUND", "NOT_TUNED", {"command": "rooftune tune x"}))
        self.assertEqual(str(error), "not tuned yet [NOT_TUNED]")

    def test_no_daemon(self):
        with self.assertRaises(rooftune.RooftuneError) as caught:
            rooftune.Client("unix:/nonexistent/socket").best("gemm", m=8)
        self.assertEqual((caught.exception.code, caught.exception.reason), ("UNAVAILABLE", "NO_DAEMON"))
        self.assertIn("unix:/nonexistent/socket", str(caught.exception))

    def test_fetch_writes_binary_and_recipe(self):
        with tempfile.TemporaryDirectory() as folder:
            record, data = self.client.fetch("gemm", m=8, directory=os.path.join(folder, "deep"))
            self.assertEqual(data, fakes.BINARY)
            files = sorted(p.name for p in pathlib.Path(folder, "deep").iterdir())
            self.assertEqual(files, [f"{record.digest}.cubin", "recipe.json"])
            self.assertIn('"evidence": "MEASURED"', pathlib.Path(folder, "deep", "recipe.json").read_text("utf-8"))

    def test_the_call_of_a_library_has_a_recipe_only(self):
        self.record, self.binary = test_cublaslt.record(), b""
        with tempfile.TemporaryDirectory() as folder:
            record, data = self.client.fetch("gemm", m=8, directory=folder, templates_only=True, cublaslt_version=130100)
            self.assertEqual((data, record.digest, os.listdir(folder)), (b"", "", ["recipe.json"]))
        query = self.fake.requests[0].query
        self.assertEqual((list(query.provider), query.cublaslt_version), ([1], 130100))

    def test_load_takes_a_library_call_of_the_version_here_only(self):
        for here, asked in ((130100, ([], 130100)), (0, ([1], 0))):
            with unittest.mock.patch("rooftune.cublaslt.version", lambda: here):
                with unittest.mock.patch("rooftune.kernel.Kernel"):
                    self.client.load("gemm", m=8)
            query = self.fake.requests[-1].query
            self.assertEqual((list(query.provider), query.cublaslt_version), asked)

    def test_damaged_binary(self):
        self.binary = fakes.BINARY + b"!"
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaises(rooftune.RooftuneError) as caught:
                self.client.fetch("gemm", m=8, directory=folder)
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual((caught.exception.code, caught.exception.reason), ("DATA_LOSS", "DIGEST_MISMATCH"))

    def test_works_in_a_forked_child(self):
        self.client.best("gemm", m=8)
        before = self.client._channel
        self.client._pid = -1  # what a child sees
        self.client.best("gemm", m=8)
        self.assertIsNot(self.client._channel, before)
        before.close()


class OpTextTest(unittest.TestCase):
    def test_dims_are_appended(self):
        self.assertEqual(client_module.op_text("gemm", {"m": 8, "dtype": "bf16", "bias": True}), "gemm m=8 dtype=bf16 bias=1")
        self.assertEqual(client_module.op_text("gemm m=8", {}), "gemm m=8")

    def test_what_is_no_word_is_refused(self):
        for value in ("", "a b", 1.5, None, "a\n"):
            with self.assertRaises(ValueError):
                client_module.op_text("gemm", {"m": value})


class DefaultAddressTest(unittest.TestCase):
    def test_environment_decides(self):
        saved = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(saved)))
        os.environ.update(ROOFTUNE_ADDRESS="localhost:1", XDG_RUNTIME_DIR="/run/user/7")
        self.assertEqual(client_module.default_address(), "localhost:1")
        del os.environ["ROOFTUNE_ADDRESS"]
        self.assertEqual(client_module.default_address(), "unix:/run/user/7/rooftune/rooftune.sock")
        del os.environ["XDG_RUNTIME_DIR"]
        self.assertEqual(client_module.default_address(), f"unix:/tmp/rooftune-{os.getuid()}/rooftune.sock")


if __name__ == "__main__":
    unittest.main()
