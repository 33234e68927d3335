//! AdamW with master weights: parameters may be of 16 bits, what is added up over steps is of 32.
//!
//! Masters, moments and gradients lie in one long tensor each, so that a step is a handful of operations however many
//! parameters there are, and wants no memory beyond. Knows names and tensors, not what they mean.

use std::collections::HashMap;

use tch::{Kind, TchError, Tensor, no_grad};

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
    /// A parameter is none of the model's.
    #[error("the model has no parameter {0}")]
    Unknown(String),
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
            self.change(rate, scale)?;
            self.publish();
            let _ = self.gradient.zero_();
            Ok(Stepped::Taken(norm))
        })
    }

    /// Changes the masters. What lies between takes the place of the gradient.
    fn change(&mut self, rate: f64, scale: f64) -> Result<(), TchError> {
        let AdamW { beta1, beta2, eps, decay, .. } = self.settings;
        let Self { master, first, second, gradient, steps, .. } = self;
        let steps = *steps as f64;
        let (correct1, correct2) = (1.0 - beta1.powf(steps), 1.0 - beta2.powf(steps));
        let _ = gradient.f_mul_scalar_(scale)?;
        let _ = first.f_lerp_(gradient, 1.0 - beta1)?;
        let _ = gradient.f_square_()?;
        let _ = second.f_lerp_(gradient, 1.0 - beta2)?;
        gradient.f_copy_(second)?;
        let _ = gradient.f_sqrt_()?.f_div_scalar_(correct2.sqrt())?.f_add_scalar_(eps)?;
        let _ = gradient.f_reciprocal_()?.f_mul_(first)?.f_mul_scalar_(rate / correct1)?;
        let _ = master.f_mul_scalar_(1.0 - rate * decay)?.f_sub_(gradient)?;
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
    pub fn memory(&self) -> Result<Memory, TchError> {
        let kept = |flat: &Tensor| {
            let named = self.parameters.iter().map(|parameter| {
                let tensor = parameter.of(flat).f_to_device(tch::Device::Cpu)?.f_contiguous()?;
                Ok((parameter.name.clone(), tensor))
            });
            named.collect::<Result<Vec<_>, TchError>>()
        };
        no_grad(|| {
            let (master, first) = (kept(&self.master)?, kept(&self.first)?);
            Ok(Memory { master, first, second: kept(&self.second)?, steps: self.steps })
        })
    }

    /// Goes on from what was kept.
    pub fn recall(&mut self, memory: &Memory) -> Result<(), MemoryError> {
        self.fill(&self.master, &memory.master)?;
        self.fill(&self.first, &memory.first)?;
        self.fill(&self.second, &memory.second)?;
        self.steps = memory.steps;
        no_grad(|| self.publish());
        self.forget();
        Ok(())
    }

    /// Begins anew with these weights.
    pub fn adopt(&mut self, weights: &[(String, Tensor)]) -> Result<(), MemoryError> {
        self.fill(&self.master, weights)?;
        self.steps = 0;
        no_grad(|| {
            let _ = self.first.zero_();
            let _ = self.second.zero_();
            self.publish();
        });
        self.forget();
        Ok(())
    }

    /// Copies what was kept to its places.
    fn fill(&self, flat: &Tensor, kept: &[(String, Tensor)]) -> Result<(), MemoryError> {
        let wanted = self.parameters.iter().map(|known| (known.name.as_str(), known.size.clone()));
        let found = matched(wanted, kept)?;
        no_grad(|| {
            for (parameter, tensor) in self.parameters.iter().zip(found) {
                parameter.of(flat).copy_(tensor);
            }
        });
        Ok(())
    }
}

/// What was kept for parameters of these names and shapes, in their order. Has to be for all of them, and no others.
pub(crate) fn matched<'a, 'b>(
    wanted: impl Iterator<Item = (&'b str, Vec<i64>)>,
    kept: &'a [(String, Tensor)],
) -> Result<Vec<&'a Tensor>, MemoryError> {
    let mut left: HashMap<&str, &Tensor> =
        kept.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    let mut matched = Vec::with_capacity(kept.len());
    for (name, wanted) in wanted {
        let tensor = left.remove(name).ok_or_else(|| MemoryError::Missing(name.to_owned()))?;
        let found = tensor.size();
        if found != wanted {
            return Err(MemoryError::Shape { name: name.to_owned(), found, wanted });
        }
        matched.push(tensor);
    }
    match left.keys().min() {
        Some(name) => Err(MemoryError::Unknown((*name).to_owned())),
        None => Ok(matched),
    }
}

#[cfg(test)]
#[path = "adamw_tests.rs"]
mod tests;
