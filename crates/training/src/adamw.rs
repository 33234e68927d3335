//! AdamW with 32-bit master weights, so that parameters may be stored in 16 bits.
//!
//! One step with gradient g (after clipping its global norm), learning rate eta and step number t, from 1:
//! ```text
//! m = beta1 m + (1 - beta1) g            v = beta2 v + (1 - beta2) g^2
//! w = w (1 - eta lambda) - eta (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//! ```
//! Reference: Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR 2019.
//!
//! Deviation: a step whose gradient is not finite is skipped instead of applied.
//!
//! Master weights, moments and gradients are one flat tensor each, so that a step is a handful of operations however
//! many parameters there are, and allocates nothing.

use std::collections::HashMap;

use tch::{Kind, TchError, Tensor, no_grad};

/// The hyperparameters of AdamW.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay, multiplied by the learning rate.
    pub weight_decay: f64,
    /// Gradients with a larger global norm are scaled down to this norm.
    pub max_grad_norm: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, max_grad_norm: 1.0 }
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepOutcome {
    /// The step was taken; the gradient's global norm before clipping.
    Taken(f64),
    /// The gradient is not finite: nothing was changed.
    Skipped,
}

/// Parameters with their master weights, moments and accumulated gradients.
#[derive(Debug)]
pub struct Optimizer {
    settings: AdamW,
    parameters: Vec<Parameter>,
    master: Tensor,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    /// Steps taken so far.
    steps: u64,
}

/// A parameter and its range in the flat tensors.
#[derive(Debug)]
struct Parameter {
    name: String,
    tensor: Tensor,
    start: i64,
    size: Vec<i64>,
}

impl Parameter {
    fn numel(&self) -> i64 {
        self.size.iter().product()
    }

    /// This parameter's part of a flat tensor, as a view.
    fn view(&self, flat: &Tensor) -> Tensor {
        flat.narrow(0, self.start, self.numel()).view(self.size.as_slice())
    }
}

/// The state of an optimizer by parameter name; 32-bit tensors on the CPU.
#[derive(Debug)]
pub struct OptimizerState {
    /// The master weights.
    pub master: Vec<(String, Tensor)>,
    /// First moments.
    pub first: Vec<(String, Tensor)>,
    /// Second moments.
    pub second: Vec<(String, Tensor)>,
    /// Steps taken.
    pub steps: u64,
}

/// A stored state does not fit the model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizerStateError {
    /// A parameter is missing.
    #[error("the checkpoint lacks parameter {0}")]
    Missing(String),
    /// The model does not have this parameter.
    #[error("the model has no parameter {0}")]
    Unknown(String),
    /// A parameter has another shape.
    #[error(
        "parameter {name} has shape {found:?} in the checkpoint, and {expected:?} in the model"
    )]
    Shape {
        /// Its name.
        name: String,
        /// Its shape in the state.
        found: Vec<i64>,
        /// Its shape in the model.
        expected: Vec<i64>,
    },
}

impl Optimizer {
    /// Starts from the current values of the parameters, which have to require gradients.
    pub fn new(parameters: Vec<(String, Tensor)>, settings: AdamW) -> Result<Self, TchError> {
        no_grad(|| {
            let device = parameters.first().map_or(tch::Device::Cpu, |(_, tensor)| tensor.device());
            let mut start = 0;
            let mut placed = Vec::with_capacity(parameters.len());
            for (name, tensor) in parameters {
                let size = tensor.size();
                let parameter = Parameter { name, tensor, start, size };
                start += parameter.numel();
                placed.push(parameter);
            }
            let zeros = || Tensor::f_zeros([start], (Kind::Float, device));
            let optimizer = Self {
                settings,
                parameters: placed,
                master: zeros()?,
                first: zeros()?,
                second: zeros()?,
                gradient: zeros()?,
                steps: 0,
            };
            for parameter in &optimizer.parameters {
                parameter.view(&optimizer.master).f_copy_(&parameter.tensor)?;
            }
            Ok(optimizer)
        })
    }

    /// The number of trained parameters (scalars).
    pub fn parameter_count(&self) -> i64 {
        self.master.numel() as i64
    }

    /// Adds the gradients that the last backward pass left at the parameters, and clears these.
    pub fn accumulate_gradients(&mut self) {
        no_grad(|| {
            for parameter in &mut self.parameters {
                let gradient = parameter.tensor.grad();
                if gradient.defined() {
                    let _ = parameter.view(&self.gradient).g_add_(&gradient);
                    parameter.tensor.zero_grad();
                }
            }
        });
    }

    /// Multiplies the accumulated gradients by a number.
    pub fn scale_gradients(&mut self, by: f64) {
        if by != 1.0 {
            let _ = no_grad(|| self.gradient.g_mul_scalar_(by));
        }
    }

    /// Clears all gradients, accumulated or not.
    pub fn zero_grad(&mut self) {
        no_grad(|| {
            let _ = self.gradient.zero_();
            for parameter in &mut self.parameters {
                parameter.tensor.zero_grad();
            }
        });
    }

    /// Updates the parameters with the accumulated gradients, and clears these.
    pub fn step(&mut self, learning_rate: f64) -> Result<StepOutcome, TchError> {
        let norm = no_grad(|| self.gradient.f_norm()?.f_double_value(&[]))?;
        if !norm.is_finite() {
            self.zero_grad();
            return Ok(StepOutcome::Skipped);
        }
        self.steps += 1;
        let max_norm = self.settings.max_grad_norm;
        let scale = if norm > max_norm { max_norm / (norm + 1e-6) } else { 1.0 };
        no_grad(|| {
            self.update_master(learning_rate, scale)?;
            self.write_parameters();
            let _ = self.gradient.zero_();
            Ok(StepOutcome::Taken(norm))
        })
    }

    /// Updates the master weights. The gradient's tensor serves as scratch space.
    fn update_master(&mut self, learning_rate: f64, scale: f64) -> Result<(), TchError> {
        let AdamW { beta1, beta2, eps, weight_decay, .. } = self.settings;
        let Self { master, first, second, gradient, steps, .. } = self;
        let steps = *steps as f64;
        let (correction1, correction2) = (1.0 - beta1.powf(steps), 1.0 - beta2.powf(steps));
        let _ = gradient.f_mul_scalar_(scale)?;
        let _ = first.f_lerp_(gradient, 1.0 - beta1)?;
        let _ = gradient.f_square_()?;
        let _ = second.f_lerp_(gradient, 1.0 - beta2)?;
        gradient.f_copy_(second)?;
        let _ = gradient.f_sqrt_()?.f_div_scalar_(correction2.sqrt())?.f_add_scalar_(eps)?;
        let _ =
            gradient.f_reciprocal_()?.f_mul_(first)?.f_mul_scalar_(learning_rate / correction1)?;
        let _ = master.f_mul_scalar_(1.0 - learning_rate * weight_decay)?.f_sub_(gradient)?;
        Ok(())
    }

    /// Copies the master weights to the parameters, rounding to their precision.
    fn write_parameters(&mut self) {
        for parameter in &mut self.parameters {
            let master = parameter.view(&self.master);
            parameter.tensor.copy_(&master);
        }
    }

    /// A copy of the state, for a checkpoint.
    pub fn state(&self) -> Result<OptimizerState, TchError> {
        let copy = |flat: &Tensor| {
            let named = self.parameters.iter().map(|parameter| {
                let tensor = parameter.view(flat).f_to_device(tch::Device::Cpu)?.f_contiguous()?;
                Ok((parameter.name.clone(), tensor))
            });
            named.collect::<Result<Vec<_>, TchError>>()
        };
        no_grad(|| {
            let (master, first) = (copy(&self.master)?, copy(&self.first)?);
            Ok(OptimizerState { master, first, second: copy(&self.second)?, steps: self.steps })
        })
    }

    /// Restores a state, and with it the parameters.
    pub fn load_state(&mut self, state: &OptimizerState) -> Result<(), OptimizerStateError> {
        self.fill(&self.master, &state.master)?;
        self.fill(&self.first, &state.first)?;
        self.fill(&self.second, &state.second)?;
        self.steps = state.steps;
        no_grad(|| self.write_parameters());
        self.zero_grad();
        Ok(())
    }

    /// Starts over from these weights: moments and the step count are zero again.
    pub fn reset_to(&mut self, weights: &[(String, Tensor)]) -> Result<(), OptimizerStateError> {
        self.fill(&self.master, weights)?;
        self.steps = 0;
        no_grad(|| {
            let _ = self.first.zero_();
            let _ = self.second.zero_();
            self.write_parameters();
        });
        self.zero_grad();
        Ok(())
    }

    /// Copies named tensors into a flat tensor.
    fn fill(&self, flat: &Tensor, named: &[(String, Tensor)]) -> Result<(), OptimizerStateError> {
        let parameters = self.parameters.iter();
        let expected = parameters.map(|known| (known.name.as_str(), known.size.clone()));
        let found = match_parameters(expected, named)?;
        no_grad(|| {
            for (parameter, tensor) in self.parameters.iter().zip(found) {
                parameter.view(flat).copy_(tensor);
            }
        });
        Ok(())
    }
}

/// The stored tensors in the order of the expected names and shapes; both sets of names have to be the same.
pub(crate) fn match_parameters<'a, 'b>(
    expected: impl Iterator<Item = (&'b str, Vec<i64>)>,
    stored: &'a [(String, Tensor)],
) -> Result<Vec<&'a Tensor>, OptimizerStateError> {
    let mut left: HashMap<&str, &Tensor> =
        stored.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut matched = Vec::with_capacity(stored.len());
    for (name, expected) in expected {
        let missing = || OptimizerStateError::Missing(name.to_owned());
        let tensor = left.remove(name).ok_or_else(missing)?;
        let found = tensor.size();
        if found != expected {
            return Err(OptimizerStateError::Shape { name: name.to_owned(), found, expected });
        }
        matched.push(tensor);
    }
    match left.keys().min() {
        Some(name) => Err(OptimizerStateError::Unknown((*name).to_owned())),
        None => Ok(matched),
    }
}

#[cfg(test)]
#[path = "adamw_tests.rs"]
mod tests;
