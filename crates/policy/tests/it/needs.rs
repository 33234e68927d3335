//! Requirements of tests, and shared networks. A test whose requirement is missing prints so and passes, unless
//! `LIS_REQUIRE` names the capability.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use lis_policy::{Architecture, Network, Output, Scaling, Shape};
use tch::{Device, Kind, Tensor};

/// The value of a variable, or a skip message.
pub(crate) fn named(variable: &str, capability: &str) -> Option<PathBuf> {
    let value = var(variable);
    if value.is_none() {
        let required = var("LIS_REQUIRE").unwrap_or_default();
        let required = required.to_string_lossy().split(',').any(|name| name == capability);
        assert!(!required, "{variable} is not set, and LIS_REQUIRE names {capability}");
        println!("skip: {variable} is not set");
    }
    value.map(PathBuf::from)
}

fn var(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Whether there is a GPU, or a skip message.
pub(crate) fn has_cuda() -> bool {
    if let Err(error) = lis_policy::load_cuda() {
        let required = var("LIS_REQUIRE").unwrap_or_default();
        let required = required.to_string_lossy().split(',').any(|name| name == "cuda");
        assert!(!required, "{error}, and LIS_REQUIRE names cuda");
        println!("skip: no CUDA");
        return false;
    }
    true
}

/// Runs a Python program with PyTorch (the package that contains libtorch) and `transformers`; `None` with a skip
/// message.
pub(crate) fn python(program: &str, arguments: &[&Path]) -> Option<String> {
    let packages = named("LIS_TEST_TRANSFORMERS", "transformers")?;
    let libtorch = named("LIBTORCH", "torch")?;
    let torch = libtorch.parent().unwrap();
    let stubs = tempfile::tempdir().unwrap();
    stand_ins(torch, stubs.path());
    let path = std::env::join_paths([torch, &packages]).unwrap();
    let mut python = command("python3");
    python.env("PYTHONPATH", path).env("LD_LIBRARY_PATH", stubs.path()).env("HF_HUB_OFFLINE", "1");
    // PyTorch is installed without bytecode: what is imported is compiled once and kept.
    python.env_remove("PYTHONDONTWRITEBYTECODE");
    python.env_remove("LD_PRELOAD").arg("-c").arg(program).args(arguments);
    let output = python.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

/// PyTorch in Python loads CUDA's libraries even where it computes on the processor. Where they are not installed,
/// stub libraries with their names and symbols are used, which are never called.
fn stand_ins(torch: &Path, to: &Path) {
    let script = include_str!("stand-ins.sh");
    let made =
        command("bash").args(["-c", script, "stand-ins"]).arg(torch).arg(to).status().unwrap();
    assert!(made.success());
}

fn command(program: &str) -> Command {
    Command::new(program)
}

/// The shape of a tiny network.
pub(crate) fn shape(architecture: Architecture, output: Output, rope_scaling: Scaling) -> Shape {
    Shape {
        architecture,
        hidden: 32,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        intermediate: 48,
        vocabulary: 77,
        rope_theta: 10000.0,
        rope_scaling,
        norm_eps: 1e-5,
        output,
        positions: 256,
    }
}

/// A tiny network in which every weight matters, biases and norms too.
pub(crate) fn tiny(architecture: Architecture, output: Output, scaling: Scaling) -> Network {
    // Other tests run meanwhile: threads would mostly wait for each other.
    tch::set_num_threads(1);
    let net =
        Network::random(shape(architecture, output, scaling), 5, Device::Cpu, Kind::Float).unwrap();
    for (number, (_, mut tensor)) in net.parameters().unwrap().into_iter().enumerate() {
        stir(&mut tensor, number as f64, 0.2);
    }
    net
}

/// Adds deterministic waves to a tensor.
pub(crate) fn stir(tensor: &mut Tensor, phase: f64, height: f64) {
    let waves = (Tensor::arange(tensor.numel() as i64, (Kind::Double, Device::Cpu)) * 1.7 + phase)
        .sin()
        * height;
    let waves =
        waves.view(tensor.size().as_slice()).to_kind(tensor.kind()).to_device(tensor.device());
    tch::no_grad(|| {
        let _ = tensor.f_add_(&waves).unwrap();
    });
}

/// The largest difference between two tensors.
pub(crate) fn difference(left: &Tensor, right: &Tensor) -> f64 {
    assert_eq!(left.size(), right.size());
    (left.to_kind(Kind::Double) - right.to_kind(Kind::Double)).abs().max().double_value(&[])
}

/// Takes the gradients of the trained parameters, all in one tensor on the CPU.
pub(crate) fn take_gradients(net: &Network) -> Tensor {
    let take = |(_, mut tensor): (String, Tensor)| {
        let gradient = tensor.grad().to_kind(Kind::Float).to_device(Device::Cpu).copy();
        tensor.zero_grad();
        gradient.view([-1])
    };
    Tensor::cat(&net.trainable().into_iter().map(take).collect::<Vec<_>>(), 0)
}

/// The distance of two vectors, relative to the length of the second.
pub(crate) fn distance(one: &Tensor, other: &Tensor) -> f64 {
    ((one - other).norm() / other.norm()).double_value(&[])
}
