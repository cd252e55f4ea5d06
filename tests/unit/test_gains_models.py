"""Whole models, language-model operators and totals: tables with the columns of the public ones, made up."""

import pytest

from fusesolve.errors import InputError
from fusesolve.study import measure_accuracy
from fusesolve.study.gains.liger import parse_config
from fusesolve.study.gains.liger_programs import PROGRAMS, Code
from fusesolve.study.gains.transformers import MODELS, bert_layer, opt_layer
from fusesolve.study.networks import engine_profile, uses_of_a_weight
from fusesolve.study.readers import read_table
from fusesolve.study.samples import Spec

LIGER = "gpu,kernel,provider,pass,dtype,config,latency_us,p20_us,p80_us,lib_version\n"
MODELS_HEAD = "gpu,model,mode,seq_len,batch,option,num_layer,forward_ms,backward_ms,e2e_ms\n"
OPERATORS = "gpu,model,mode,seq_len,batch,op,input_shapes,output_shape,n_in_layer_graph,fwd_latency_us,bwd_latency_us\n"
TIMM = (
    "gpu,layout,model,img_size,params_M,gmacs_per_img,mactivations_per_img,compile_batch,eager_batch,compile_ms,"
    "eager_ms\n"
)
HAILO = "device,task,model,fps_batch1,fps_batch8,input_hwc,params_M,ops_G,latency_us_batch1\n"
QUALCOMM = (
    "model,component,precision,chipset,runtime,compute_unit,latency_ms,layers_npu,layers_gpu,layers_cpu,"
    "peak_mem_mb_max,n_params_M,input_resolution\n"
)


def write(tmp_path, head, *rows):
    path = tmp_path / "table.csv"
    path.write_text(head + "".join(f"{row}\n" for row in rows))
    return path


def test_a_fused_norm_saves_its_passes(tmp_path):
    config = '"{M:8192,eps:1e-06,H:8192}"'
    found = measure_accuracy([write(
        tmp_path, LIGER,
        f"A100-SXM4-80GB,rms_norm,huggingface,forward,bf16,{config},1600,0,0,1",
        f"A100-SXM4-80GB,rms_norm,liger,forward,bf16,{config},180,0,0,1",
        f"A100-SXM4-80GB,rms_norm,liger,backward,bf16,{config},180,0,0,1",
        f"A100-SXM4-80GB,jsd,liger,forward,bf16,{config},180,0,0,1",
        f"A100-SXM4-80GB,rms_norm,liger,forward,fp32,{config},180,0,0,1",
    )])  # fmt: skip
    (gain,) = found.gains
    assert (gain.n, gain.winner_right, gain.split) == (1, 1.0, "forward")
    assert 6 < gain.predicted_gain < 12  # 38 bytes an element against 4
    assert sum(item.n for item in found.excluded) == 3


def test_kernels_that_share_a_launch_are_priced_by_their_parts(tmp_path):
    config = '"{hidden_size:1024,num_q_heads:8,num_kv_heads:2,T:256}"'
    rows = [f"A100-SXM4-80GB,rope,{side},forward,bf16,{config},50,0,0,1" for side in ("huggingface", "liger")]
    (gain,) = measure_accuracy([write(tmp_path, LIGER, *rows)]).gains
    assert gain.planned_gain > gain.predicted_gain  # queries and keys in one launch


@pytest.mark.parametrize("kernel", PROGRAMS)
def test_every_program_of_the_benchmarks_is_a_graph(kernel):
    sizes = dict.fromkeys(
        [
            "M",
            "N",
            "H",
            "T",
            "V",
            "B",
            "S",
            "ffn_local",
            "hidden_size",
            "intermediate_size",
            "num_q_heads",
            "num_kv_heads",
            "bsz",
        ],
        "8",
    )
    sizes |= {"hidden_size": "64", "num_q_heads": "4", "num_kv_heads": "2"}
    build, dtype = PROGRAMS[kernel]
    assert build(Code(kernel, sizes, dtype)).graph.nodes


def test_a_configuration_is_a_mapping():
    assert parse_config("{B:8,hidden_act:silu}") == {"B": "8", "hidden_act": "silu"}


def test_a_model_is_its_layers(tmp_path):
    rows = [
        f"H100-SXM5-80GB,bert_large,inf,128,{batch},{option},24,{ms},0,{ms}"
        for batch, times in ((8, (20, 18)), (16, (40, 36)))
        for option, ms in zip(("eager", "fusion"), times, strict=True)
    ]
    found = measure_accuracy([write(tmp_path, MODELS_HEAD, *rows, "H100-SXM5-80GB,gpt9,inf,128,8,eager,1,1,0,1")])
    (gain,) = found.gains
    assert (gain.n, gain.split) == (2, "inference")
    assert gain.predicted_gain > 1.0
    assert gain.planned_gain >= gain.predicted_gain - 1e-9
    assert max(row.errors.median_ape for row in found.rows) < 0.5
    assert "gpt9" in found.excluded[0].why


@pytest.mark.parametrize("name", MODELS)
def test_the_layers_do_the_products_of_their_model(name):
    shape, layer = MODELS[name]
    nodes = layer(shape, 1, 16).graph.nodes
    assert sum(node.op == "matmul" for node in nodes) == (8 if layer in (bert_layer, opt_layer) else 6)


def test_operators_of_models_are_eager_calls(tmp_path):
    table = read_table(write(
        tmp_path, OPERATORS,
        "A100-PCIE-40GB,bert_large,inf,512,8,linear,8x512x1024,8x512x4096,1,700,0",
        "A100-PCIE-40GB,bert_large,inf,512,8,add,8x16x512x512;8x1x1x512,8x16x512x512,1,100,0",
        "A100-PCIE-40GB,bert_large,inf,512,8,mul,8x4x4;8x4x4,8x4x4,1,100,0",
        "A100-PCIE-40GB,bert_large,inf,512,8,matmul,8x16x512x64;8x16x64x512,8x16x512x512,1,100,0",
        "A100-PCIE-40GB,bert_large,inf,512,8,dropout,8x4,8x4,1,100,0",
    ))  # fmt: skip
    assert [sample.kernels[0] for sample in table.samples] == [
        Spec("matmul", "f32", (4096, 4096, 1024)), Spec("addu", "f32", (65536, 512)), Spec("mul", "f32", (32, 4)),
        Spec("bmm", "f32", (128, 512, 512, 64)),
    ]  # fmt: skip
    assert "dropout" in table.skipped[0].why


def test_totals_rank_models_by_their_activations(tmp_path):
    rows = [f"RTX3090,nchw,m{i},224,10,5,{i + 1},64,32,{10 * i + 10},{8 * i + 7}" for i in range(6)]
    found = measure_accuracy(
        [write(tmp_path, TIMM, *rows, "RTX3090,nchw,n,224,10,5,9,,32,,20", "XPU,n,n,1,1,1,1,1,1,1,1")]
    )
    (gain,) = found.gains
    assert (gain.n, gain.split) == (6, "models by totals")
    assert gain.predicted_gain > 1.0
    assert gain.planned_gain is None
    assert {row.op: row.errors.n for row in found.rows} == {"model eager by totals": 7}
    assert found.excluded[0].device == "XPU"


def test_networks_of_an_npu_are_ranked(tmp_path):
    rows = [
        f"Hailo-8,c,m{i},{1000 / (i + 1)},{2000 / (i + 1)},224x224x3,{5 * (i + 1)},{2 * (i + 1)},1" for i in range(9)
    ]
    found = measure_accuracy(
        [write(tmp_path, HAILO, *rows, "Hailo-8,c,x,10,10,1x1x1,,1,1", "Hailo-99,c,x,1,1,1x1x1,1,1,1")]
    )
    assert {row.op: row.errors.spearman for row in found.rows} == {
        "network batch 1": pytest.approx(1.0),
        "network batch 8": pytest.approx(1.0),
    }
    assert sum(item.n for item in found.excluded) == 2


def test_only_what_runs_on_the_npu_counts(tmp_path):
    row = "{m},c,w8a8,Snapdragon-8-Gen3,tflite,{unit},{ms},{layers},0,{cpu},1,{params},224x224"
    rows = [row.format(m=f"m{i}", unit="NPU", ms=i + 1, layers=50, cpu=0, params=3 * i + 1) for i in range(8)]
    rows += [row.format(m="c", unit="CPU", ms=1, layers=0, cpu=50, params=1)]
    found = measure_accuracy([write(tmp_path, QUALCOMM, *rows)])
    (result,) = found.rows
    assert (result.op, result.errors.n) == ("network w8a8 tflite", 8)
    assert result.errors.spearman == pytest.approx(1.0)
    assert found.excluded[0].n == 1


def test_uses_of_a_weight_follow_the_input():
    assert uses_of_a_weight("224x224") == 196
    assert uses_of_a_weight("1x384") == 384
    assert uses_of_a_weight("256 tokens (English text)") == 256
    assert uses_of_a_weight("text") is None


def test_an_engine_has_the_rates_of_its_sheet():
    name, profile = engine_profile("Hailo-8")
    assert profile.compute.tensor.per_clock["i8"] * profile.compute.sustained_clock == pytest.approx(13e12)
    assert "Hailo-8" in name


def test_a_malformed_row_is_refused(tmp_path):
    row = "RTX3090,nchw,m,224,10,many,4,64,32,10,20"
    with pytest.raises(InputError, match="models by totals"):
        measure_accuracy([write(tmp_path, TIMM, row)])
