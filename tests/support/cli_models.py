"""Small models for tests of the command line, made of operators that need generic kernels only."""

from __future__ import annotations

from onnx import ModelProto

from .models import parsed

# Names that would do harm in a source, a shell, a path, a terminal or a markup language.
HOSTILE = 'x"*/\n{{ 7*7 }}\x1b[31m/../../etc/$(touch pwned)`; rm -rf ~; %s</script>'

CHAIN = """
<ir_version: 8, opset_import: ["" : 18]>
chain (float[batch,64] x, float[64] scale) => (float[batch,64] probability, float[batch,64] activation) {
  scaled = Mul(x, scale)
  gate = Sigmoid(scaled)
  mixed = Add(gate, x)
  probability = Softmax<axis=-1>(mixed)
  activation = Tanh(mixed)
}
"""

LABELS = """
<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
labels (float[batch,2] x, string[batch] word) => (string[batch] label, seq(map(string, float)) scores) {
  label = Identity(word)
  scores = ai.onnx.ml.ZipMap<classlabels_strings=["no", "yes"]>(x)
}
"""

STATIC = """
<ir_version: 8, opset_import: ["" : 18]>
static (float[2,8] x) => (float[2,8] y) {
  y = Relu(x)
}
"""

CACHED = """
<ir_version: 8, opset_import: ["" : 18]>
cached (float[batch,past] cache, float[batch,seq] x, float[batch,total] mask) => (float[batch,total] y) {
  all = Concat<axis=1>(cache, x)
  y = Add(all, mask)
}
"""

ODD = """
<ir_version: 8, opset_import: ["" : 18]>
odd (float[2,8] x) => (float[2,8] y) {
  y = Relu<legacy=1>(x)
}
"""

UNKNOWN = """
<ir_version: 8, opset_import: ["" : 18, "com.example" : 1]>
unknown (float[2,8] x) => (float[2,8] y) {
  a = com.example.Mystery(x)
  b = com.example.Riddle(a)
  y = Relu(b)
}
"""


def hostile() -> ModelProto:
    """The chain with hostile names everywhere that a name may stand."""
    m = parsed(CHAIN)
    names = {n: f"{HOSTILE}{k}" for k, n in enumerate(("x", "scale", "gate", "mixed", "probability", "activation"))}
    for value in (*m.graph.input, *m.graph.output):
        value.name = names[value.name]
        value.doc_string = HOSTILE
    for k, node in enumerate(m.graph.node):
        node.name = f"{HOSTILE} node {k}"
        node.input[:] = [names.get(n, n) for n in node.input]
        node.output[:] = [names.get(n, n) for n in node.output]
    m.graph.name = m.producer_name = HOSTILE
    return m
