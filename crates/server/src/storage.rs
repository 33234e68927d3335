//! What a token may leave on the server's disk: its files and its snapshots together.

use std::sync::Arc;

use sandbox::{ByteSize, RemoteRuntime};

use crate::{
    chat::{FileLimits, MostBytes, Room},
    error::ApiError,
    quota::OverQuota,
    registry::Registry,
    tokens::Caller,
};

impl<R: RemoteRuntime> Registry<R> {
    /// Room for files of a caller: a share of the server's, and what its snapshots leave of its quota at any time.
    pub(crate) fn file_room(&self, caller: &Caller, limits: FileLimits) -> Room {
        let tokens = self.options.tokens.clone();
        let files = tokens.share_of(limits.files);
        let total = usize::try_from(limits.total_bytes).unwrap_or(usize::MAX);
        let (snapshots, caller) = (Arc::clone(&self.snapshots), caller.clone());
        Room {
            owner: caller.name.to_string(),
            files,
            bytes: MostBytes::new(move || {
                let share = u64::try_from(tokens.share_of(total)).unwrap_or(u64::MAX);
                match caller.account().quotas().storage {
                    Some(most) => {
                        share.min(most.bytes().saturating_sub(snapshots.bytes_of(&caller.name)))
                    }
                    None => share,
                }
            }),
        }
    }

    /// Refuses a snapshot of this size if its owner has no room for it. `None`: as much as there is. What is returned is told
    /// what all of the owner's snapshots take with this one.
    pub(crate) fn storage_check(
        &self,
        caller: &Caller,
        name: &str,
        size: Option<ByteSize>,
    ) -> impl FnOnce(u64) -> Result<(), ApiError> + Send + use<R> {
        let (caller, name) = (caller.clone(), name.to_owned());
        let files = self.options.chat.as_ref().map(|chat| Arc::clone(&chat.files));
        move |snapshots| {
            let Some(most) = caller.account().quotas().storage else { return Ok(()) };
            let files = files.map_or(0, |files| files.bytes_of(&caller.name));
            if size.is_some() && files.saturating_add(snapshots) <= most.bytes() {
                return Ok(());
            }
            let with = match size {
                Some(size) => format!("the snapshot `{name}` has {size}"),
                None => format!("the size of the snapshot `{name}` is not known"),
            };
            let over = OverQuota {
                token: caller.name.clone(),
                quota: "storage",
                most: format!("{most} for files and snapshots; {with}"),
                retry_after: crate::quota::RETRY,
            };
            Err(over.into())
        }
    }
}
