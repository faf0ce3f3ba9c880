"""A plan of cuvil-compile on the GPU, over the C API (include/cuvil.h)."""

import ctypes


class Plan:
    """One instance: bind tensors of the GPU once, run it as often as wanted.

    The tensors stay the caller's and must outlive the runs; they are as the
    model's file says in type and shape, contiguous.  What the library refuses
    raises RuntimeError with its message.
    """

    def __init__(self, library, plan):
        self.lib = ctypes.CDLL(library)
        self.lib.cuvil_last_error.restype = ctypes.c_char_p
        self.lib.cuvil_instance_bind_input.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int,
            ctypes.c_uint64,
        ]
        self.lib.cuvil_instance_bind_output.argtypes = (
            self.lib.cuvil_instance_bind_input.argtypes
        )
        self.lib.cuvil_instance_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.context = ctypes.c_void_p()
        self.instance = ctypes.c_void_p()
        self.check(self.lib.cuvil_context_create(0, ctypes.byref(self.context)))
        self.check(
            self.lib.cuvil_instance_load(
                self.context, plan.encode(), ctypes.byref(self.instance)
            )
        )

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.cuvil_last_error().decode())

    def bind(self, inputs, y):
        for i, x in enumerate(inputs):
            self.check(
                self.lib.cuvil_instance_bind_input(self.instance, i, x.data_ptr())
            )
        self.check(
            self.lib.cuvil_instance_bind_output(self.instance, 0, y.data_ptr())
        )

    def run(self, stream):
        self.check(self.lib.cuvil_instance_run(self.instance, stream))

    def close(self):
        """Frees the instance and its GPU memory; the plan cannot run again."""
        self.lib.cuvil_instance_unload(self.instance)
        self.lib.cuvil_context_destroy(self.context)
        self.instance, self.context = ctypes.c_void_p(), ctypes.c_void_p()
