//! The store on a real directory: limits, restarts, callers.

use super::*;

fn about(owner: &str) -> About {
    About { owner: owner.into(), name: "a.txt".into(), purpose: "user_data".into(), lifetime: None }
}

fn open(dir: &Path, limits: FileLimits) -> Arc<FileStore> {
    Arc::new(FileStore::open(dir, limits).unwrap())
}

async fn add(store: &Arc<FileStore>, id: &str, content: &[u8]) -> Result<StoredFile, StoreError> {
    let mut new = store.begin(id).await?;
    new.write(content).await?;
    new.finish(about("ann")).await
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
    let waiting = store.begin("three").await.unwrap();
    assert!(matches!(store.begin("four").await, Err(StoreError::TooMany(2))));
    drop(waiting);
    add(&store, "five", b"12").await.unwrap();
    assert_eq!(entries(dir.path()), 4);
}

#[tokio::test]
async fn a_file_expires() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), FileLimits::default());
    let new = store.begin("one").await.unwrap();
    let about = About { lifetime: Some(Duration::ZERO), ..about("ann") };
    let file = new.finish(about).await.unwrap();
    assert_eq!(store.find("ann", &file.id), None);
    assert_eq!(entries(dir.path()), 0);
}

#[test]
fn files_of_episodes_are_copied_within_the_limits() {
    let dir = tempfile::tempdir().unwrap();
    let limits = FileLimits { file_bytes: 4, ..FileLimits::default() };
    let store = open(&dir.path().join("store"), limits);
    let made = dir.path().join("made");
    fs::write(&made, "made").unwrap();
    let file = store.import("one", &mut fs::File::open(&made).unwrap(), about("ann")).unwrap();
    fs::write(&made, "too long").unwrap();
    let refused = store.import("two", &mut fs::File::open(&made).unwrap(), about("ann"));
    assert!(matches!(refused, Err(StoreError::TooLarge(4))));
    assert_eq!(fs::read_to_string(store.path(&file)).unwrap(), "made");
    assert_eq!(entries(&dir.path().join("store")), 2);
}
