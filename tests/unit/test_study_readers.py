"""Tables are known by their columns; each row becomes the kernels that ran."""

import pytest

from fusesolve.errors import InputError
from fusesolve.study.readers import READERS, find_reader, read_table
from fusesolve.study.samples import Spec, Timing


def table(tmp_path, text, name="data.csv"):
    path = tmp_path / name
    path.write_text(text)
    return read_table(path)


def test_a_gemm_row(tmp_path):
    head = "gpu,dtype,m,n,k,latency_us,vllm_us,sglang_us,trtllm_us\n"
    found = table(tmp_path, head + "A100,bf16,2,32,64,2.8,2.7,2.8,2.9\n")
    (row,) = found.samples
    assert row.kernels == (Spec("matmul", "bf16", (2, 32, 64)),)
    assert row.latency == pytest.approx(2.8e-6)
    assert (row.timing, row.copies) == (Timing.GRAPH, 6)


def test_an_fp8_row_is_two_calls_with_their_quantisation(tmp_path):
    text = "gpu,dtype,m,n,k,latency_us,vllm_us,sglang_us,trtllm_us\nH200,fp8,2,32,64,9,5,,12\n"
    vllm, trtllm = table(tmp_path, text).samples
    assert [kernel.op for kernel in vllm.kernels] == ["row_quantise", "product_by_rows"]
    assert [kernel.op for kernel in trtllm.kernels] == ["largest", "mulu", "quantise", "matmul"]
    assert (vllm.latency, trtllm.latency) == (pytest.approx(5e-6), pytest.approx(12e-6))


def test_elementwise_and_row_tables_differ_by_their_columns(tmp_path):
    plain = table(tmp_path, "gpu,op,rows,cols,latency_us\nP4,add,7,9,26.3\n").samples[0]
    rows = table(tmp_path, "gpu,op,rows,cols,kernel,grid_x,block_x,block_y,latency_us\nP4,softmax,7,9,k,1,1,1,40\n")
    assert plain.kernels == (Spec("add", "f32", (7, 9)),)
    assert rows.samples[0].kernels == (Spec("softmax", "f32", (7, 9)),)
    assert plain.timing is Timing.EAGER


def test_a_linear_layer_multiplies_its_batch_into_the_rows(tmp_path):
    head = "gpu,op,batch,m,n,k,kernel,tile,grid,block,latency_us\n"
    linear = table(tmp_path, head + "V100,linear,4,8,16,32,x,x,x,128,60\n").samples[0]
    batched = table(tmp_path, head + "V100,bmm,4,8,16,32,x,x,x,128,60\n").samples[0]
    assert linear.kernels[0] == Spec("matmul", "f32", (32, 16, 32))
    assert batched.kernels[0] == Spec("bmm", "f32", (4, 8, 16, 32))


def test_decoding_writes_the_cache_first(tmp_path):
    head = "gpu,phase,dtype,batch,q_len,kv_len,n_heads,n_kv_heads,head_dim,causal,kernel,latency_us\n"
    found = table(tmp_path, head + "H200,decode,bf16,4,1,128,8,2,64,1,vllm_flash_attn_fa3,11\n").samples[0]
    assert found.kernels == (
        Spec("cache_write", "bf16", (4, 2 * 2 * 64)), Spec("attention", "bf16", (4, 1, 128, 8, 2, 64, 1)),
    )  # fmt: skip


def test_an_unknown_table_is_listed_and_no_error(tmp_path):
    found = table(tmp_path, "gpu,provider,latency_us\nA100,x,1\nA100,y,2\n")
    assert not found.samples
    assert [item.device for item in found.skipped] == ["A100", "A100"]
    assert "provider" in found.skipped[0].why


def test_an_operator_without_known_kernels_is_listed(tmp_path):
    head = "gpu,op,rows,cols,k,cols2,latency_us,min_us,max_us\n"
    found = table(tmp_path, head + "A40,rope_unfused_hf,7,9,,,4,3,5\n")
    assert "rope_unfused_hf" in found.skipped[0].why


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no rows"),
        ("gpu,op,rows,cols,latency_us\n", "no rows"),
        ("gpu,op,rows,cols,latency_us\nP4,add,seven,9,26\n", "line 2"),
        ("gpu,op,rows,cols,latency_us\nP4,add,7,9,0\n", "line 2"),
        ("gpu,op,rows,cols,latency_us\nP4,add,7,9,nan\n", "line 2"),
        ("gpu,op,rows,cols,latency_us\nP4,add,7\n", "line 2"),
    ],
)
def test_a_bad_table_is_one_line(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        table(tmp_path, text)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_table(tmp_path / "missing.csv")


def test_readers_are_told_apart():
    """No two readers have the same columns, and each finds itself by exactly its own."""
    assert len({reader.columns for reader in READERS}) == len(READERS)
    for reader in READERS:
        assert find_reader(sorted(reader.columns)) is reader
