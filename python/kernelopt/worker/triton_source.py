"""Gate 1 on Triton sources: a closed allow-list over the syntax tree (DESIGN sections 5 and 6; docs/formats.md).

Candidate text is imported by the worker to reach its `@triton.jit` functions, so everything that Python would run while
importing must be known: three imports and decorated functions, nothing else. Inside a function only names that the
function binds, helpers of the same source, `range`, `float` of a literal and listed parts of `tl` and `libdevice` exist.
"""

import ast
import hashlib
import os
import re
import uuid

from kernelopt.worker.errors import CompileError

_IMPORTS = {
    "import triton", "import triton.language as tl", "from triton import language as tl",
    "from triton.language.extra import libdevice", "import triton.language.extra.libdevice as libdevice",
}
_FUNCTIONS = frozenset(
    "program_id num_programs arange zeros full zeros_like full_like load store atomic_add atomic_max atomic_min atomic_and atomic_or "
    "atomic_xor atomic_xchg atomic_cas broadcast broadcast_to expand_dims reshape view trans permute join split cat interleave ravel "
    "flip where maximum minimum clamp max min sum argmax argmin xor_sum reduce associative_scan cumsum cumprod sort gather "
    "histogram dot dot_scaled abs exp exp2 log log2 sin cos sqrt sqrt_rn rsqrt erf floor ceil fma div_rn fdiv umulhi sigmoid softmax "
    "swizzle2d cdiv cast rand randn randint randint4x rand4x randn4x philox static_range range static_assert multiple_of "
    "max_contiguous max_constancy assume debug_barrier device_assert".split()
)
_CONSTANTS = frozenset(
    "int1 int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64 float8e4nv float8e5 constexpr".split()
)
_NESTED = frozenset({"PropagateNan.ALL", "PropagateNan.NONE"})
_METHODS = frozenset({"to", "reshape", "trans", "broadcast_to"})
_PROPERTIES = frozenset({"dtype", "shape", "T"})
_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.Return, ast.Expr, ast.Pass, ast.Assert)
_EXPRESSIONS = (
    ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Name, ast.Constant, ast.Tuple, ast.List, ast.Subscript, ast.Slice,
    ast.Attribute, ast.Call, ast.keyword, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)
_LONGEST = 1 << 20


def check(source, name):
    """Raises CompileError where the source holds anything but what a kernel may contain, or no kernel called `name`."""
    if len(source) > _LONGEST:
        raise CompileError(f"a source of {len(source)} characters")
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise CompileError(f"the source is no Python: {error}") from error
    functions = {}
    for statement in tree.body:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            if ast.unparse(statement) not in _IMPORTS:
                raise _refused(statement, f"the import `{ast.unparse(statement)}`")
        elif isinstance(statement, ast.FunctionDef):
            if statement.name in functions:
                raise _refused(statement, f"a second function {statement.name}")
            functions[statement.name] = statement
        else:
            raise _refused(statement, "a statement beside imports and functions")
    if name not in functions:
        raise CompileError(f"the source defines no function {name}")
    for function in functions.values():
        _Function(function, functions).check()


def _refused(node, what):
    return CompileError(f"line {getattr(node, 'lineno', '?')}: {what} is not allowed in a kernel")


def _name_ok(name):
    return re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) is not None and "__" not in name


class _Function:
    def __init__(self, node, functions):
        self.node, self.functions = node, functions

    def check(self):
        node, arguments = self.node, self.node.args
        if [ast.unparse(item) for item in node.decorator_list] != ["triton.jit"]:
            raise _refused(node, f"a function {node.name} that is not decorated with exactly @triton.jit")
        if arguments.vararg or arguments.kwarg or arguments.kwonlyargs or arguments.defaults or arguments.posonlyargs:
            raise _refused(node, f"a parameter of {node.name} that is not plain")
        if node.returns is not None or getattr(node, "type_params", None):
            raise _refused(node, "an annotation of the result")
        self.bound = {argument.arg for argument in arguments.args}
        for argument in arguments.args:
            if argument.annotation is not None and ast.unparse(argument.annotation) != "tl.constexpr":
                raise _refused(argument, f"the annotation {ast.unparse(argument.annotation)}")
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                self.bound.add(part.id)
        reserved = {"tl", "triton", "libdevice", "range", "float", *self.functions}
        for name in (node.name, *self.bound):
            if not _name_ok(name) or (name in reserved and name != node.name):
                raise _refused(node, f"the name {name}")
        if node.name in reserved - set(self.functions) or node.name in self.bound:
            raise _refused(node, f"the name {node.name}")
        for statement in node.body:
            self._statement(statement)

    def _statement(self, node):
        if not isinstance(node, _STATEMENTS):
            raise _refused(node, type(node).__name__)
        if isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Call, ast.Constant)):
            raise _refused(node, "an expression without a use")
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) != "tl.constexpr":
            raise _refused(node, f"the annotation {ast.unparse(node.annotation)}")
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.stmt):
                    self._statement(child)
                elif isinstance(child, ast.AST) and field not in ("annotation", "op"):
                    self._expression(child)
        if isinstance(node, ast.For):
            called = node.iter.func if isinstance(node.iter, ast.Call) else None
            if called is None or ast.unparse(called) not in ("range", "tl.range", "tl.static_range"):
                raise _refused(node, "a loop over something else than a range")

    def _expression(self, node):
        if not isinstance(node, _EXPRESSIONS):
            raise _refused(node, type(node).__name__)
        if isinstance(node, ast.Call):
            self._call(node)
            return
        if isinstance(node, ast.Attribute):
            self._attribute(node)
            return
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in self.bound and node.id not in self.functions:
            raise _refused(node, f"the name {node.id}")
        if isinstance(node, ast.Constant) and not isinstance(node.value, (int, float, str, bool, type(None))):
            raise _refused(node, f"a constant of type {type(node.value).__name__}")
        for child in ast.iter_child_nodes(node):
            self._expression(child)

    def _attribute(self, node):
        text = ast.unparse(node)
        if isinstance(node.ctx, ast.Load) and text.startswith("tl.") and (text[3:] in _CONSTANTS or text[3:] in _NESTED):
            return
        if node.attr in _PROPERTIES and isinstance(node.ctx, ast.Load):
            self._expression(node.value)
            return
        raise _refused(node, f"`{text[:80]}`")

    def _call(self, node):
        function = node.func
        if isinstance(function, ast.Name):
            literal = len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and not node.keywords
            if not (function.id in self.functions or function.id == "range" or (function.id == "float" and literal)):
                raise _refused(node, f"a call of {function.id}")
        elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "tl":
            if function.attr not in _FUNCTIONS:
                raise _refused(node, f"a call of tl.{function.attr}")
        elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "libdevice":
            if not _name_ok(function.attr):
                raise _refused(node, f"a call of libdevice.{function.attr}")
        elif isinstance(function, ast.Attribute) and function.attr in _METHODS:
            self._expression(function.value)
        else:
            raise _refused(node, f"a call of `{ast.unparse(function)[:80]}`")
        for child in (*node.args, *node.keywords):
            self._expression(child.value if isinstance(child, ast.keyword) else child)


def module_file(source, folder):
    """The path of a module with this text in `folder`, addressed by content, so that it is never another text."""
    path = os.path.join(folder, "k" + hashlib.sha256(source.encode()).hexdigest()[:32] + ".py")
    if not os.path.exists(path):
        write_whole(path, source)
    return path


def write_whole(path, text):
    """Writes a file that others never see half written; several threads and processes may write the same one."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    with open(temporary, "w") as file:
        file.write(text)
    os.replace(temporary, path)
