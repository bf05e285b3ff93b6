"""What compiling a candidate raises."""


class CompileError(Exception):
    """The candidate's fault: message is the compiler's first error, detail its whole output."""

    def __init__(self, message, detail=""):
        super().__init__(message)
        self.detail = detail
