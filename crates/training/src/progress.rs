//! How far a run is, and its checkpoints: the part of a training loop that both kinds of runs share.

use std::path::Path;

use sandbox::Runtime;

use crate::{
    checkpoint::{Checkpoints, Position},
    events::RunEvent,
    services::{Services, TrainError},
    trainer::Trainer,
};

/// The position of a run, and the step it was last saved at.
pub(crate) struct Progress {
    pub(crate) position: Position,
    checkpoints: Checkpoints,
    saved: Option<u64>,
}

impl Progress {
    /// Loads the last checkpoint of a run into the trainer, or starts at step 0.
    pub(crate) fn resume(
        run: &Path,
        keep: usize,
        trainer: &mut Trainer,
    ) -> Result<Self, TrainError> {
        let checkpoints = Checkpoints::new(run, keep);
        let Some((position, state)) = checkpoints.last()? else {
            return Ok(Self { position: Position::default(), checkpoints, saved: None });
        };
        trainer.load_state(&state)?;
        let saved = Some(position.step);
        Ok(Self { position, checkpoints, saved })
    }

    /// The step of the last checkpoint.
    pub(crate) fn saved(&self) -> Option<u64> {
        self.saved
    }

    /// Saves a checkpoint, unless the current step is saved already.
    pub(crate) fn save<R: Runtime>(
        &mut self,
        trainer: &Trainer,
        services: &Services<'_, R>,
    ) -> Result<(), TrainError> {
        let step = self.position.step;
        if self.saved == Some(step) || step == 0 {
            return Ok(());
        }
        self.checkpoints.save(&self.position, &trainer.state()?)?;
        self.saved = Some(step);
        services.observer.on_event(RunEvent::Saved { step });
        Ok(())
    }

    /// Saves after an error that left the weights intact. A failure to save is only noted, so as not to hide the error.
    pub(crate) fn save_after_error<R: Runtime>(
        &mut self,
        trainer: &Trainer,
        services: &Services<'_, R>,
    ) {
        if let Err(unsaved) = self.save(trainer, services) {
            services.note(&format!(
                "the last steps cannot be saved: {}",
                error_text::one_line(&unsaved)
            ));
        }
    }
}
