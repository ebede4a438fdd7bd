"""The errors of an ONNX Runtime that is made up."""


class Fail(Exception):
    pass


EPFail = InvalidArgument = NotImplemented = RuntimeException = Fail
