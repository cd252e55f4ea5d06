"""Small questions about ONNX protobuf messages that several stages of the importer ask."""

from collections.abc import Iterator

import onnx

UNKNOWN_DOMAIN = "unknown"  # stands for the standard domain on operators that the standard does not have


def one_line(error: object) -> str:
    """The text of `error` on one line of at most 300 characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:297]}..."


def is_standard(domain: str) -> bool:
    """True for the two spellings of the standard's own domain."""
    return domain in ("", "ai.onnx")


def standard_opset(model: onnx.ModelProto) -> int | None:
    """Version of the standard operator set that the model imports, or None."""
    return next((item.version for item in model.opset_import if is_standard(item.domain)), None)


def walk_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """The graph and all graphs nested in its nodes, outermost first."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for node in current.node:
            for attribute in node.attribute:
                pending.extend(attribute.graphs)
                if attribute.HasField("g"):
                    pending.append(attribute.g)


def node_label(node: onnx.NodeProto) -> str:
    """Name of a node as plans show it: its own, or `op_type:first_output` where it is empty."""
    return node.name or f"{node.op_type}:{next(iter(node.output), '')}"
