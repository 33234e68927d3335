//! Sandboxes that are created ahead of time.

use std::sync::Arc;

use pyo3::prelude::*;
use sandbox::{Pool, Sandbox, Spec};

use crate::{
    engine::{Process, leak},
    failure::Failure,
    operation::Operation,
    owned::Owned,
    renewed::Renewed,
    sandbox_handle::Shared,
    spec::SandboxSpec,
    value::Value,
};

/// A pool, and what its sandboxes are.
pub(crate) struct SharedPool {
    pool: Owned<Pool<Renewed>>,
    spec: Spec,
    size: usize,
}

impl SharedPool {
    /// Starts to fill a pool.
    pub(crate) async fn start(
        process: Arc<Process>,
        spec: SandboxSpec,
        size: usize,
    ) -> Result<Arc<Self>, Failure> {
        let runtime = Renewed::start(&process, &spec.runtime).await?;
        let pool = Pool::new(Arc::new(runtime), spec.spec.clone(), size);
        let pool = Owned::new(&process, pool, "the pool".into());
        Ok(Arc::new(Self { pool, spec: spec.spec, size }))
    }

    async fn take(&self) -> Result<Arc<Shared>, Failure> {
        let size = self.size;
        let taking = self.pool.using(move |pool| {
            Box::pin(async move {
                // All that wait have ended if their runtime has.
                for _ in 0..size {
                    let sandbox = pool.take().await?;
                    match sandbox.peak_memory().await {
                        Err(error) if error.is_gone() => {}
                        _ => return Ok(sandbox),
                    }
                }
                Ok(pool.take().await?)
            })
        });
        Ok(Shared::new(self.pool.process(), taking.await?, self.spec.clone()))
    }
}

/// A pool of sandboxes.
#[pyclass(frozen, module = "llm_in_sandbox._native")]
pub(crate) struct PoolHandle(pub(crate) Arc<SharedPool>);

impl Drop for PoolHandle {
    fn drop(&mut self) {
        if !self.0.pool.process().is_own() {
            leak(&self.0);
        }
    }
}

#[pymethods]
impl PoolHandle {
    #[getter]
    fn closed(&self) -> bool {
        self.0.pool.is_closed()
    }

    fn take(&self) -> Operation {
        let shared = Arc::clone(&self.0);
        let taking = async move { shared.take().await.map(Value::Sandbox) };
        Operation::new(self.0.pool.process(), taking)
    }

    fn close(&self) -> Operation {
        let shared = Arc::clone(&self.0);
        if shared.pool.is_left_alone() {
            return Operation::nothing(shared.pool.process());
        }
        let closing = async move { shared.pool.close(Pool::close).await.map(|()| Value::None) };
        Operation::new(self.0.pool.process(), closing)
    }
}
