//! AdamW with master weights: parameters may be of 16 bits, what is added up over steps is of 32.
//!
//! Masters, moments and gradients lie in one long tensor each, so that a step is a handful of operations however many
//! parameters there are. Knows names and tensors, not what they mean.

use tch::{Kind, TchError, Tensor, no_grad};

/// So many numbers are worked on at once: bounds the memory of what lies between.
const CHUNK: i64 = 1 << 26;

/// How steps are taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    /// How much of the old mean of gradients is kept.
    pub beta1: f64,
    /// How much of the old mean of their squares is kept.
    pub beta2: f64,
    /// Keeps the division a number.
    pub eps: f64,
    /// How much weights shrink, in units of the learning rate.
    pub decay: f64,
    /// Longer gradients are shortened to this.
    pub clip: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, decay: 0.01, clip: 1.0 }
    }
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stepped {
    /// It was taken; the length of the gradient before it was cut.
    Taken(f64),
    /// The gradient is no number: nothing was changed.
    Skipped,
}

/// Parameters, and what is known about their gradients.
#[derive(Debug)]
pub struct Optimiser {
    settings: AdamW,
    parameters: Vec<Parameter>,
    master: Tensor,
    first: Tensor,
    second: Tensor,
    gradient: Tensor,
    /// Steps taken so far.
    steps: u64,
}

#[derive(Debug)]
struct Parameter {
    name: String,
    tensor: Tensor,
    start: i64,
    size: Vec<i64>,
}

impl Parameter {
    fn numbers(&self) -> i64 {
        self.size.iter().product()
    }

    fn of(&self, flat: &Tensor) -> Tensor {
        flat.narrow(0, self.start, self.numbers()).view(self.size.as_slice())
    }
}

/// What an optimiser remembers, by the names of parameters; 32-bit tensors on the CPU.
#[derive(Debug)]
pub struct Memory {
    /// The weights.
    pub master: Vec<(String, Tensor)>,
    /// Means of gradients.
    pub first: Vec<(String, Tensor)>,
    /// Means of their squares.
    pub second: Vec<(String, Tensor)>,
    /// Steps taken.
    pub steps: u64,
}

/// Why what was remembered does not fit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A parameter is missing.
    #[error("there is nothing about parameter {0}")]
    Missing(String),
    /// A parameter has another shape.
    #[error("parameter {name} has shape {found:?}, not {wanted:?}")]
    Shape {
        /// Its name.
        name: String,
        /// Its shape in the memory.
        found: Vec<i64>,
        /// Its shape in the model.
        wanted: Vec<i64>,
    },
}

impl Optimiser {
    /// Begins with parameters as they are; they have to want gradients.
    pub fn new(parameters: Vec<(String, Tensor)>, settings: AdamW) -> Result<Self, TchError> {
        no_grad(|| {
            let device = parameters.first().map_or(tch::Device::Cpu, |(_, tensor)| tensor.device());
            let mut start = 0;
            let mut placed = Vec::with_capacity(parameters.len());
            for (name, tensor) in parameters {
                let size = tensor.size();
                let parameter = Parameter { name, tensor, start, size };
                start += parameter.numbers();
                placed.push(parameter);
            }
            let zeros = || Tensor::f_zeros([start], (Kind::Float, device));
            let optimiser = Self {
                settings,
                parameters: placed,
                master: zeros()?,
                first: zeros()?,
                second: zeros()?,
                gradient: zeros()?,
                steps: 0,
            };
            for parameter in &optimiser.parameters {
                parameter.of(&optimiser.master).f_copy_(&parameter.tensor)?;
            }
            Ok(optimiser)
        })
    }

    /// How many numbers are trained.
    pub fn numbers(&self) -> i64 {
        self.master.numel() as i64
    }

    /// Takes up the gradients that the last backward pass left at the parameters.
    pub fn absorb(&mut self) {
        no_grad(|| {
            for parameter in &mut self.parameters {
                let gradient = parameter.tensor.grad();
                if gradient.defined() {
                    let _ = parameter.of(&self.gradient).g_add_(&gradient);
                    parameter.tensor.zero_grad();
                }
            }
        });
    }

    /// Forgets the gradients, taken up or not.
    pub fn forget(&mut self) {
        no_grad(|| {
            let _ = self.gradient.zero_();
            for parameter in &mut self.parameters {
                parameter.tensor.zero_grad();
            }
        });
    }

    /// Changes the parameters by the gradients taken up, and forgets these.
    pub fn step(&mut self, rate: f64) -> Result<Stepped, TchError> {
        let norm = no_grad(|| self.gradient.f_norm()?.f_double_value(&[]))?;
        if !norm.is_finite() {
            self.forget();
            return Ok(Stepped::Skipped);
        }
        self.steps += 1;
        let scale =
            if norm > self.settings.clip { self.settings.clip / (norm + 1e-6) } else { 1.0 };
        no_grad(|| {
            let mut start = 0;
            while start < self.numbers() {
                let length = CHUNK.min(self.numbers() - start);
                self.step_chunk(start, length, rate, scale)?;
                start += length;
            }
            self.publish();
            let _ = self.gradient.zero_();
            Ok(Stepped::Taken(norm))
        })
    }

    fn step_chunk(
        &mut self,
        start: i64,
        length: i64,
        rate: f64,
        scale: f64,
    ) -> Result<(), TchError> {
        let AdamW { beta1, beta2, eps, decay, .. } = self.settings;
        let part = |flat: &Tensor| flat.narrow(0, start, length);
        let (mut master, mut gradient) = (part(&self.master), part(&self.gradient));
        let (mut first, mut second) = (part(&self.first), part(&self.second));
        let steps = self.steps as f64;
        let (correct1, correct2) = (1.0 - beta1.powf(steps), 1.0 - beta2.powf(steps));
        let _ = gradient.f_mul_scalar_(scale)?;
        let _ = first.f_lerp_(&gradient, 1.0 - beta1)?;
        let _ = second
            .f_mul_scalar_(beta2)?
            .f_add_(&gradient.f_square()?.f_mul_scalar_(1.0 - beta2)?)?;
        // The gradient is not needed any more: its place serves for what lies between.
        gradient.f_copy_(&second)?;
        let _ = gradient.f_sqrt_()?.f_div_scalar_(correct2.sqrt())?.f_add_scalar_(eps)?;
        let change = first.f_div(&gradient)?.f_mul_scalar_(rate / correct1)?;
        let _ = master.f_mul_scalar_(1.0 - rate * decay)?.f_sub_(&change)?;
        Ok(())
    }

    /// Gives the parameters the values of their masters.
    fn publish(&mut self) {
        for parameter in &mut self.parameters {
            let master = parameter.of(&self.master);
            parameter.tensor.copy_(&master);
        }
    }

    /// All that has to be kept to go on from here.
    pub fn memory(&self) -> Memory {
        let kept = |flat: &Tensor| {
            let named = self.parameters.iter().map(|parameter| {
                let tensor = parameter.of(flat).to_device(tch::Device::Cpu).contiguous();
                (parameter.name.clone(), tensor)
            });
            named.collect::<Vec<_>>()
        };
        no_grad(|| Memory {
            master: kept(&self.master),
            first: kept(&self.first),
            second: kept(&self.second),
            steps: self.steps,
        })
    }

    /// Goes on from what was kept.
    pub fn recall(&mut self, memory: &Memory) -> Result<(), MemoryError> {
        no_grad(|| {
            let pairs = [
                (&self.master, &memory.master),
                (&self.first, &memory.first),
                (&self.second, &memory.second),
            ];
            for (flat, kept) in pairs {
                for parameter in &self.parameters {
                    let found = kept.iter().find(|(name, _)| *name == parameter.name);
                    let (name, tensor) =
                        found.ok_or_else(|| MemoryError::Missing(parameter.name.clone()))?;
                    if tensor.size() != parameter.size {
                        let (found, wanted) = (tensor.size(), parameter.size.clone());
                        return Err(MemoryError::Shape { name: name.clone(), found, wanted });
                    }
                    parameter.of(flat).copy_(tensor);
                }
            }
            self.steps = memory.steps;
            self.publish();
            Ok(())
        })?;
        self.forget();
        Ok(())
    }
}

#[cfg(test)]
#[path = "adamw_tests.rs"]
mod tests;
