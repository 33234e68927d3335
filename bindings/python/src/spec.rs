//! The arguments of a sandbox's constructor as a specification.

use std::{path::PathBuf, time::Duration};

use pyo3::{
    Borrowed,
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyBool, PyDict, PyString},
};
use sandbox::{ByteSize, HostPattern, ImageRef, Network, Spec};

use crate::{engine::RuntimeKey, failure::Failure};

/// A sandbox and the runtime that is to create it.
#[derive(Clone)]
pub(crate) struct SandboxSpec {
    pub(crate) runtime: RuntimeKey,
    pub(crate) spec: Spec,
}

/// What stands for no limit.
const UNLIMITED: &str = "unlimited";

impl<'py> FromPyObject<'_, 'py> for SandboxSpec {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let arguments = object.cast::<PyDict>()?;
        let mut spec = Spec::default();
        let mut kind = "native".to_owned();
        let mut docker_host = None;
        for (name, value) in arguments.iter() {
            if value.is_none() {
                continue;
            }
            let name: String = name.extract()?;
            let wrong = |error: PyErr| invalid(py, &name, &error);
            match name.as_str() {
                "image" => spec.image = image(&value).map_err(wrong)?,
                "env" => {
                    let env: Bound<'_, PyDict> =
                        value.cast_into().map_err(PyErr::from).map_err(wrong)?;
                    for (name, value) in env.iter() {
                        let pair =
                            (name.extract().map_err(wrong)?, value.extract().map_err(wrong)?);
                        spec.env.push(pair);
                    }
                }
                "workdir" => spec.workdir = value.extract::<PathBuf>().map_err(wrong)?,
                "memory" => spec.limits.memory = size(&value).map_err(wrong)?,
                "disk" => spec.limits.disk = size(&value).map_err(wrong)?,
                "cpus" => spec.limits.cpus = limit(&value).map_err(wrong)?,
                "processes" => spec.limits.pids = limit(&value).map_err(wrong)?,
                "network" => spec.network = network(py, &value).map_err(wrong)?,
                "stall_timeout" => spec.stall_timeout = seconds(&value).map_err(wrong)?,
                "runtime" => kind = value.extract().map_err(wrong)?,
                "docker_host" => docker_host = Some(value.extract().map_err(wrong)?),
                _ => return Err(PyTypeError::new_err(format!("unknown argument `{name}`"))),
            }
        }
        let runtime = match kind.as_str() {
            "native" => RuntimeKey::Native,
            "docker" => RuntimeKey::Docker(docker_host),
            other => {
                let message = format!("there is no runtime `{other}`; write native or docker");
                return Err(Failure::usage(message).into_exception(py));
            }
        };
        spec.validate().map_err(|error| Failure::Sandbox(error.into()).into_exception(py))?;
        Ok(Self { runtime, spec })
    }
}

/// The exception for a value that an argument cannot have: a wrong type stays one.
pub(crate) fn invalid(py: Python<'_>, name: &str, error: &PyErr) -> PyErr {
    let text = error.value(py).to_string();
    match error.is_instance_of::<PyTypeError>(py) {
        true => PyTypeError::new_err(format!("argument `{name}`: {text}")),
        false => Failure::usage(format!("argument `{name}`: {text}")).into_exception(py),
    }
}

fn image(value: &Bound<'_, PyAny>) -> PyResult<ImageRef> {
    if let Ok(text) = value.cast::<PyString>() {
        return match text.to_cow()?.parse() {
            Ok(image) => Ok(image),
            Err(never) => match never {},
        };
    }
    value.extract::<PathBuf>().map(ImageRef::Dir)
}

/// A number of bytes, or a text such as `512M`.
fn size(value: &Bound<'_, PyAny>) -> PyResult<Option<ByteSize>> {
    if let Ok(text) = value.cast::<PyString>() {
        return match text.to_cow()?.as_ref() {
            UNLIMITED => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|error: sandbox::ParseSizeError| PyValueError::new_err(error.to_string())),
        };
    }
    refuse_bool(value)?;
    value.extract::<u64>().map(|bytes| Some(ByteSize(bytes)))
}

fn limit<'a, 'py, T: FromPyObject<'a, 'py>>(value: &'a Bound<'py, PyAny>) -> PyResult<Option<T>> {
    if value.cast::<PyString>().is_ok_and(|text| text == UNLIMITED) {
        return Ok(None);
    }
    refuse_bool(value)?;
    value.extract().map(Some).map_err(Into::into)
}

fn refuse_bool(value: &Bound<'_, PyAny>) -> PyResult<()> {
    match value.is_instance_of::<PyBool>() {
        true => Err(PyTypeError::new_err("'bool' is not a number")),
        false => Ok(()),
    }
}

/// A policy by its name, or a list of hosts.
fn network(py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<Network> {
    let refuse = |error: sandbox::SpecError| PyValueError::new_err(error.to_string());
    if let Ok(text) = value.cast::<PyString>() {
        return text.to_cow()?.parse().map_err(refuse);
    }
    let hosts: Vec<String> = value.extract()?;
    if hosts.is_empty() {
        let message = "the list of hosts is empty; write network=\"none\" for no network";
        return Err(Failure::usage(message).into_exception(py));
    }
    let hosts: Result<Vec<HostPattern>, _> = hosts.iter().map(|host| host.parse()).collect();
    hosts.map(Network::Allow).map_err(refuse)
}

/// A time limit from JSON.
pub(crate) fn duration(name: &str, seconds: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        Failure::usage(format!("argument `{name}`: {seconds} is not a number of seconds"))
    })
}

/// A positive number of seconds.
pub(crate) fn seconds(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    refuse_bool(value)?;
    let seconds: f64 = value.extract()?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| PyValueError::new_err(format!("{seconds} is not a number of seconds")))
}
