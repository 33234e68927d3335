//! What a token may leave on the server's disk: its files and its snapshots together.

use sandbox::{ByteSize, RemoteRuntime};

use crate::{
    chat::{FileLimits, Room},
    error::ApiError,
    quota::OverQuota,
    registry::Registry,
    tokens::Caller,
};

impl<R: RemoteRuntime> Registry<R> {
    /// Room for files of a caller: a share of the server's, and what its snapshots leave of its quota.
    pub(crate) fn file_room(&self, caller: &Caller, limits: FileLimits) -> Room {
        let tokens = &self.options.tokens;
        let total = usize::try_from(limits.total_bytes).unwrap_or(usize::MAX);
        let share = u64::try_from(tokens.share_of(total)).unwrap_or(u64::MAX);
        let quota = caller.account().quotas().storage;
        let quota =
            quota.map(|most| most.bytes().saturating_sub(self.snapshots.bytes_of(&caller.name)));
        Room {
            owner: caller.name.to_string(),
            files: tokens.share_of(limits.files),
            bytes: quota.map_or(share, |left| left.min(share)),
        }
    }

    /// Refuses a snapshot of this size if its owner has no room for it. `None`: as much as there is.
    pub(crate) fn check_storage(
        &self,
        caller: &Caller,
        name: &str,
        size: Option<ByteSize>,
    ) -> Result<(), ApiError> {
        let Some(most) = caller.account().quotas().storage else { return Ok(()) };
        let files = self.options.chat.as_ref().map_or(0, |chat| chat.files.bytes_of(&caller.name));
        // One that is replaced counts until then: both are there while the new one is saved.
        let snapshots = self.snapshots.bytes_of(&caller.name);
        let more = size.map_or(u64::MAX, ByteSize::bytes);
        if files.saturating_add(snapshots).saturating_add(more) <= most.bytes() {
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
