//! The store on a real directory: limits, restarts, callers.

use super::*;

fn about() -> About {
    About { name: "a.txt".into(), purpose: "user_data".into(), lifetime: None }
}

/// Without limits of the owner's own.
fn room(owner: &str) -> Room {
    Room { owner: owner.into(), files: usize::MAX, bytes: MostBytes::new(|| u64::MAX) }
}

fn open(dir: &Path, limits: FileLimits) -> Arc<FileStore> {
    Arc::new(FileStore::open(dir, limits).unwrap())
}

async fn add(store: &Arc<FileStore>, id: &str, content: &[u8]) -> Result<StoredFile, StoreError> {
    let mut new = store.begin(id, room("ann")).await?;
    new.write(content).await?;
    new.finish(about()).await
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[tokio::test]
async fn files_survive_a_restart_and_leftovers_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), FileLimits::default());
    let file = add(&store, "one", b"hello").await.unwrap();
    fs::write(dir.path().join("file-half.partial"), "x").unwrap();
    fs::write(dir.path().join("file-undescribed"), "x").unwrap();
    let cut = StoredFile { id: "file-cut".into(), bytes: 9, ..file.clone() };
    fs::write(dir.path().join("file-cut"), "x").unwrap();
    fs::write(dir.path().join("file-cut.json"), serde_json::to_vec(&cut).unwrap()).unwrap();
    drop(store);
    let store = open(dir.path(), FileLimits::default());
    assert_eq!(store.list("ann"), std::slice::from_ref(&file));
    assert_eq!(entries(dir.path()), 2);
    assert_eq!(fs::read(store.path(&file)).unwrap(), b"hello");
    assert!(store.remove("ann", &file.id) && !store.remove("ann", &file.id));
    assert_eq!(entries(dir.path()), 0);
}

#[tokio::test]
async fn a_caller_has_its_own_files_only() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), FileLimits::default());
    let file = add(&store, "one", b"hello").await.unwrap();
    assert_eq!(store.find("bob", &file.id), None);
    assert!(!store.remove("bob", &file.id) && store.list("bob").is_empty());
    assert!(store.find("ann", &file.id).is_some());
}

#[tokio::test]
async fn limits_hold_and_what_is_refused_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let limits = FileLimits { files: 2, file_bytes: 4, total_bytes: 6 };
    let store = open(dir.path(), limits);
    assert!(matches!(add(&store, "big", b"12345").await, Err(StoreError::TooLarge(4))));
    add(&store, "one", b"1234").await.unwrap();
    assert!(matches!(add(&store, "two", b"123").await, Err(StoreError::Full(6))));
    let waiting = store.begin("three", room("ann")).await.unwrap();
    assert!(matches!(store.begin("four", room("ann")).await, Err(StoreError::TooMany(2))));
    drop(waiting);
    add(&store, "five", b"12").await.unwrap();
    assert_eq!(entries(dir.path()), 4);
}

#[tokio::test]
async fn a_file_expires() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), FileLimits::default());
    let new = store.begin("one", room("ann")).await.unwrap();
    let about = About { lifetime: Some(Duration::ZERO), ..about() };
    let file = new.finish(about).await.unwrap();
    assert_eq!(store.find("ann", &file.id), None);
    assert_eq!(entries(dir.path()), 0);
}

#[tokio::test]
async fn an_owner_has_its_own_room() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), FileLimits::default());
    let small = || Room { files: 2, bytes: MostBytes::new(|| 6), ..room("ann") };
    let mut one = store.begin("one", small()).await.unwrap();
    one.write(b"1234").await.unwrap();
    let mut two = store.begin("two", small()).await.unwrap();
    assert!(matches!(two.write(b"123").await, Err(StoreError::FullOwn(6))));
    assert!(matches!(store.begin("three", small()).await, Err(StoreError::TooManyOwn(2))));
    assert!(store.begin("bobs", Room { owner: "bob".into(), ..small() }).await.is_ok());
    drop(two);
    let file = one.finish(about()).await.unwrap();
    assert_eq!((store.bytes_of("ann"), store.bytes_of("bob")), (4, 0));
    drop(store);
    // What was stored counts after a restart, and no longer once it is deleted.
    let store = open(dir.path(), FileLimits::default());
    assert_eq!(store.bytes_of("ann"), 4);
    assert!(store.remove("ann", &file.id));
    assert_eq!((store.bytes_of("ann"), store.lock().owners.len()), (0, 0));
}

/// The time of day does not move here: only the monotonic clock says that an hour has passed.
#[tokio::test(start_paused = true)]
async fn a_file_expires_by_the_monotonic_clock() {
    let dir = tempfile::tempdir().unwrap();
    let hour = Duration::from_secs(3600);
    let store = open(dir.path(), FileLimits::default());
    let mut from = fs::File::open("/dev/null").unwrap();
    let about = About { lifetime: Some(hour), ..about() };
    let file = store.import("one", &mut from, room("ann"), about).unwrap();
    drop(store);
    let store = open(dir.path(), FileLimits::default());
    assert!(store.find("ann", &file.id).is_some());
    tokio::time::advance(hour).await;
    assert_eq!(store.find("ann", &file.id), None);
}

#[test]
fn files_of_episodes_are_copied_within_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    let limits = FileLimits { file_bytes: 4, ..FileLimits::default() };
    let store = open(&dir.path().join("store"), limits);
    let made = dir.path().join("made");
    fs::write(&made, "made").unwrap();
    let file =
        store.import("one", &mut fs::File::open(&made).unwrap(), room("ann"), about()).unwrap();
    fs::write(&made, "too long").unwrap();
    let refused = store.import("two", &mut fs::File::open(&made).unwrap(), room("ann"), about());
    assert!(matches!(refused, Err(StoreError::TooLarge(4))));
    assert_eq!(fs::read_to_string(store.path(&file)).unwrap(), "made");
    assert_eq!(entries(&dir.path().join("store")), 2);
}
