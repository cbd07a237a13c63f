import struct
import sys
import types
import unittest
import unittest.mock

import fakes
import rooftune
from rooftune import Kernel, Record, CudaError
from fakes import FakeDriver, FakeTensor

A, B, C, D = 0x10000, 0x20000, 0x40000, 0x30000


class KernelTest(unittest.TestCase):
    def setUp(self):
        self.drivers = {0: FakeDriver(0), 1: FakeDriver(1), 2: FakeDriver(2, "sm_100")}

    def kernel(self, record=None, gpu=None):
        return Kernel(Record(record or fakes.gemm_record()), fakes.BINARY, gpu, self.drivers.__getitem__)

    def test_arguments_are_packed_in_order(self):
        outputs = self.kernel()(a=A, b=B, d=D, alpha=0.5, stream=77)
        self.assertEqual(outputs, {"d": D})
        workspace = next(c for c in self.drivers[0].calls if c[0] == "allocate")[2]
        product, total = self.drivers[0].launches()
        self.assertEqual(product, ("launch", "module.rt_gemm", (4, 1, 2), (128, 1, 1), 2, False, 65536, 77, [
            struct.pack("<Q", A), struct.pack("<Q", B), struct.pack("<Q", workspace + 256), struct.pack("<i", -3)]))
        self.assertEqual(total, ("launch", "module.rt_reduce", (1, 1, 1), (256, 1, 1), 1, True, 0, 77, [
            struct.pack("<Q", D), struct.pack("<f", 0.5), struct.pack("<q", 1 << 40)]))

    def test_order_of_calls(self):
        kernel = self.kernel()
        kernel(a=A, b=B, d=D, stream=5)
        kernel(a=A, b=B, d=D, stream=5)
        kernel.close()
        names = [c[0] for c in self.drivers[0].calls]
        self.assertEqual(names, ["load", "allow_shared", "allocate", "zero", "launch", "launch", "zero", "launch", "launch",
                                 "free", "unload"])
        self.assertIn(("zero", 0x11000, 1024, 5), self.drivers[0].calls)
        with self.assertRaisesRegex(CudaError, "closed"):
            kernel(a=A, b=B, d=D)

    def test_a_workspace_is_zeroed_once_where_that_is_enough(self):
        kernel = self.kernel(fakes.gemm_record(workspace_init=3))
        for stream in (5, 5, 6, 5):
            kernel(a=A, b=B, d=D, stream=stream)
        self.assertEqual([c[2:] for c in self.drivers[0].calls if c[0] == "zero"], [(1024, 5), (1024, 6)])

    def test_streams_have_workspaces_of_their_own(self):
        kernel = self.kernel()
        kernel(a=A, b=B, d=D, stream=1)
        kernel(a=A, b=B, d=D, stream=2)
        self.assertEqual(len({c[2] for c in self.drivers[0].calls if c[0] == "allocate"}), 2)

    def test_scalar_defaults(self):
        self.kernel()(a=A, b=B, d=D)
        self.assertEqual(self.drivers[0].launches()[1][-1][1], struct.pack("<f", 1.5))

    def test_outputs_have_memory_of_their_own(self):
        with self.assertRaisesRegex(ValueError, "'b' and 'd' are at one address"):
            self.kernel()(a=A, b=B, d=B)
        self.kernel()(a=A, b=A, d=D)  # inputs may be the same
        record = fakes.gemm_record()
        next(t for t in record.plan.tensor if t.name == "d").role = record.plan.tensor[0].INOUT
        self.assertEqual(self.kernel(record)(a=A, b=B, d=D), {"d": D})

    def test_large_clusters_are_allowed_once(self):
        record = fakes.gemm_record()
        record.plan.launch[0].cluster_x.value = record.plan.launch[0].grid_x.value = 16
        self.kernel(record)
        self.assertIn(("allow_large_cluster", "module.rt_gemm"), self.drivers[0].calls)

    def test_launches_that_cuda_has_not(self):
        for field, value, text in (("grid_x", 1 << 31, "grid x has 2147483648 blocks"), ("grid_y", 65536, "grid y"),
                                   ("grid_z", 65536, "grid z"), ("grid_x", 3, "no multiple of the cluster")):
            record = fakes.gemm_record()
            getattr(record.plan.launch[0], field).value = value
            with self.assertRaisesRegex(CudaError, text):
                self.kernel(record)
        self.assertEqual(self.drivers[0].calls, [])

    def test_argument_kinds_of_the_future(self):
        record = fakes.gemm_record()
        record.plan.launch[0].argument.add(size=8)
        with self.assertRaisesRegex(NotImplementedError, "argument kind None"):
            self.kernel(record)
        record = fakes.gemm_record()
        record.plan.launch[0].argument.add(tensor_map={"tensor": "a"}, size=64)
        with self.assertRaisesRegex(NotImplementedError, "tensor_map of 64 bytes"):
            self.kernel(record)
        record = fakes.gemm_record()
        record.plan.launch[0].argument[3].size = 2
        with self.assertRaisesRegex(NotImplementedError, "integer of 2 bytes"):
            self.kernel(record)

    def test_tensor_maps_are_encoded_once_an_address(self):
        record = fakes.gemm_record()
        for launch, tensor in ((0, "a"), (1, "d")):
            description = record.plan.launch[launch].argument.add(size=128).tensor_map
            description.tensor, description.dtype, description.swizzle, description.l2_promotion = tensor, 3, 3, 2
            for field, values in (("dim", (32, 8)), ("stride_bytes", (64,)), ("box", (64, 8)), ("element_stride", (1, 1))):
                for value in values:
                    getattr(description, field).add(value=value)
        kernel = self.kernel(record)
        kernel(a=A, b=B, d=D)
        kernel(a=A, b=B, d=D)
        kernel(a=B, b=B, d=D)
        maps = [c for c in self.drivers[0].calls if c[0] == "tensor_map"]
        self.assertEqual(maps, [("tensor_map", address, "BF16", [32, 8], [64], [64, 8], [1, 1], (0, 3, 2, 0))
                                for address in (A, D, B)])
        self.assertEqual([launch[-1][-1] for launch in self.drivers[0].launches()],
                         [b"map of %#x" % address for address in (A, D, A, D, B, D)])

    def test_tensor_maps_kept_are_few(self):
        record = fakes.gemm_record()
        record.plan.launch[0].argument.add(tensor_map={"tensor": "a", "dtype": 3}, size=128)
        kernel = self.kernel(record)
        with unittest.mock.patch("rooftune.kernel._MAX_TENSOR_MAPS", 2):
            for a in (A, B, C, C, A):
                kernel(a=a, b=B, d=D)
        self.assertEqual([c[1] for c in self.drivers[0].calls if c[0] == "tensor_map"], [A, B, C, A])

    def test_another_architecture(self):
        with self.assertRaisesRegex(CudaError, "for sm_90, GPU 2 is sm_100"):
            self.kernel(gpu=2)

    def test_missing_unknown_and_misaligned(self):
        kernel = self.kernel()
        with self.assertRaisesRegex(TypeError, r"tensor 'b' \(BF16 \[1, 16, 32\]\) is missing"):
            kernel(a=A, d=D)
        with self.assertRaisesRegex(TypeError, "unknown argument 'c'"):
            kernel(a=A, b=B, d=D, c=A)
        with self.assertRaisesRegex(ValueError, "'a' must be aligned to 16 bytes"):
            kernel(a=A + 2, b=B, d=D)
        with self.assertRaisesRegex(TypeError, "'a' is neither a torch tensor nor a device address: list"):
            kernel(a=[1], b=B, d=D)
        self.assertEqual(self.drivers[0].launches(), [])

    def test_evaluate_for_other_dims(self):
        kernel = self.kernel()
        grid = kernel.plan.launch[0].grid_x
        self.assertEqual((kernel.evaluate(grid), kernel.evaluate(grid, m=9), kernel.evaluate(grid, batch=3)), (4, 5, 12))


class TorchTest(KernelTest):
    """The same and more with a stand-in for torch."""

    def setUp(self):
        super().setUp()
        self.current = 0
        cuda = types.SimpleNamespace(is_available=lambda: True, current_device=lambda: self.current,
                                     current_stream=lambda gpu: types.SimpleNamespace(cuda_stream=1000 + gpu))
        torch = types.SimpleNamespace(cuda=cuda, bfloat16="torch.bfloat16", empty=self.empty)
        self.had, sys.modules["torch"] = sys.modules.get("torch"), torch
        self.addCleanup(self.restore)

    def restore(self):
        if self.had is None:
            del sys.modules["torch"]
        else:
            sys.modules["torch"] = self.had

    def empty(self, shape, dtype, device):
        return FakeTensor(shape, dtype, int(device.split(":")[1]), D)

    def tensors(self, gpu=0):
        return {"a": FakeTensor((8, 32), gpu=gpu, address=A), "b": FakeTensor((1, 16, 32), gpu=gpu, address=B)}

    def test_output_is_made_beside_the_inputs(self):
        outputs = self.kernel()(**self.tensors(gpu=1))
        self.assertEqual(outputs["d"].device.index, 1)
        self.assertEqual(self.drivers[0].launches(), [])
        self.assertEqual([c[7] for c in self.drivers[1].launches()], [1001, 1001])

    def test_loads_on_the_current_device(self):
        self.current = 1
        self.kernel()
        self.assertEqual(self.drivers[1].calls[0][0], "load")
        self.assertEqual(self.drivers[0].calls, [])

    def test_tensors_must_be_together(self):
        tensors = self.tensors()
        tensors["b"] = self.tensors(gpu=1)["b"]
        with self.assertRaisesRegex(ValueError, "several GPUs: 'a' on 0, 'b' on 1"):
            self.kernel()(**tensors)

    def test_tensors_are_checked(self):
        kernel = self.kernel()
        for wrong, error, text in ((FakeTensor((8, 32), "torch.float16"), TypeError, "takes torch.bfloat16"),
                                   (FakeTensor((32, 8)), ValueError, r"has shape \[32, 8\], the kernel takes \[1, 8, 32\]"),
                                   (FakeTensor((8, 32), contiguous=False), ValueError, "contiguous"),
                                   (FakeTensor((8, 32), gpu=None), ValueError, "not on a GPU")):
            with self.assertRaisesRegex(error, text):
                kernel(a=wrong, b=self.tensors()["b"])
        self.assertEqual(self.drivers[0].launches(), [])

    def test_four_bits_are_bytes_of_two(self):
        record = fakes.gemm_record()
        record.plan.tensor[0].dtype = 9  # INT4, [1, 8, 32]
        kernel = self.kernel(record)
        self.assertEqual(kernel.tensors[0], ("a", "INPUT", "INT4", (1, 8, 16)))
        kernel(a=FakeTensor((8, 16), "torch.uint8", address=A), b=self.tensors()["b"])
        with self.assertRaisesRegex(ValueError, r"takes \[1, 8, 16\]"):
            kernel(a=FakeTensor((8, 32), "torch.uint8", address=A), b=self.tensors()["b"])

    def test_missing_unknown_and_misaligned(self):
        with self.assertRaisesRegex(TypeError, "'b'.*is missing"):
            self.kernel()(a=A)


class LoadTest(unittest.TestCase):
    def test_without_a_driver_it_says_so(self):
        try:
            rooftune.driver.Driver(0)
        except CudaError as error:
            self.assertRegex(str(error), "no CUDA driver|cuInit")
        else:
            self.skipTest("this machine has a GPU")


if __name__ == "__main__":
    unittest.main()
