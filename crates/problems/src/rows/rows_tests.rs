//! Files of rows, good and bad.

use std::sync::Arc;

use ::parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use serde_json::json;
use tempfile::TempDir;

use super::*;

fn row(id: &str) -> Value {
    json!({"id": id, "problem_statement": format!("q {id}"), "ground_truth": "t"})
}

fn file(dir: &TempDir, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    path
}

fn read_rows(path: &Path) -> Result<Rows, RowsError> {
    read_files(&[path], &|_| Ok(()))
}

fn read(name: &str, content: impl AsRef<[u8]>) -> Result<Rows, RowsError> {
    let dir = tempfile::tempdir().unwrap();
    read_rows(&file(&dir, name, content))
}

fn ids(rows: &Rows) -> Vec<&str> {
    rows.problems.iter().map(|problem| problem.id.as_str()).collect()
}

fn refusal(name: &str, content: impl AsRef<[u8]>) -> String {
    error_text::chain(&read(name, content).unwrap_err())
}

#[test]
fn bad_lines_are_named_and_the_rest_is_read() {
    let text = format!(
        "\u{feff}{}\r\n\n{{\n{}\n[]\n\"\\ud800\"\n{}",
        row("a"),
        json!({"id": "b", "ground_truth": "t"}),
        row("c")
    );
    let rows = read("rows.jsonl", &text).unwrap();
    assert_eq!(ids(&rows), ["a", "c"]);
    let bad: Vec<_> = rows.bad.iter().map(|bad| bad.row).collect();
    assert_eq!(bad, [3, 4, 5, 6]);
    assert!(rows.bad[0].why.contains("not valid JSON"), "{}", rows.bad[0]);
    assert!(
        rows.bad[1]
            .to_string()
            .ends_with("rows.jsonl, row 4: there is no field `problem_statement`")
    );
    assert_eq!(rows.sha256.len(), 64);
    let not_text = read("rows.jsonl", b"{\"id\": \"\xff\"}\n").unwrap();
    assert!(not_text.bad[0].why.contains("not valid JSON"));
}

#[test]
fn equal_rows_are_repetitions_and_unequal_ones_an_error() {
    let other = json!({"id": "a", "problem_statement": "another", "ground_truth": "t"});
    let text =
        [row("a"), row("b"), row("a"), other, row("a")].map(|row| row.to_string()).join("\n");
    let rows = read("rows.jsonl", text).unwrap();
    let repeats: Vec<_> = rows.problems.iter().map(|problem| problem.repeats).collect();
    assert_eq!((ids(&rows), repeats), (vec!["a", "b"], vec![3, 1]));
    assert_eq!(rows.bad.len(), 1);
    assert_eq!(rows.bad[0].row, 4);
    assert_eq!(rows.bad[0].why, "id `a` belongs to another problem in row 1");
    for key in ["domain", "subject", "qa_type"] {
        let mut second = row("a");
        second[key] = "another kind".into();
        let rows = read("rows.jsonl", format!("{}\n{second}", row("a"))).unwrap();
        assert_eq!((rows.problems[0].repeats, rows.bad.len()), (1, 1), "{key}");
    }
}

#[test]
fn a_line_beyond_the_bound_is_skipped() {
    let text = format!("{}\n\"{}\"\n{}\n", row("a"), "x".repeat(LARGEST_ROW), row("b"));
    let rows = read("rows.jsonl", text).unwrap();
    assert_eq!(ids(&rows), ["a", "b"]);
    assert_eq!((rows.bad.len(), rows.bad[0].row), (1, 2));
    assert!(rows.bad[0].why.contains("longer than"), "{}", rows.bad[0]);
}

#[test]
fn json_comes_in_four_shapes() {
    let list = json!([row("a"), 1, row("b")]);
    let columns =
        json!({"id": ["a", "b"], "problem_statement": ["q a", "q b"], "ground_truth": ["t", "t"]});
    let lines = format!("{}\n{}\n", row("a"), row("b"));
    for (text, bad) in [
        (list.to_string(), 1),
        (serde_json::to_string_pretty(&list).unwrap(), 1),
        (json!({"version": "1", "data": list}).to_string(), 1),
        (columns.to_string(), 0),
        (lines, 0),
    ] {
        let rows = read("rows.json", &text).unwrap();
        assert_eq!((ids(&rows), rows.bad.len()), (vec!["a", "b"], bad), "{text}");
    }
    assert!(refusal("rows.json", "[{]").contains("rows.json is not valid JSON: "));
    assert!(refusal("rows.json", format!("[{}", row("a"))).contains("EOF"));
    assert!(refusal("rows.json", "").contains("EOF"));
    assert!(refusal("rows.json", "3").contains("a list of rows"));
    assert!(refusal("rows.json", row("a").to_string()).contains("neither a list of rows"));
    let ragged = json!({"id": ["a"], "problem_statement": []}).to_string();
    assert!(refusal("rows.json", ragged).contains("column `problem_statement` has 0 values"));
    assert!(refusal("rows.json", "[".repeat(100_000)).contains("recursion"));
}

#[test]
fn a_row_of_json_has_a_bound() {
    let dir = tempfile::tempdir().unwrap();
    // The file is read in pieces of a quarter of that.
    let bounds = json::Bounds { row: 1 << 20, columns: 1 << 20 };
    let read = |length: usize| {
        let path = file(&dir, "rows.json", format!("[\"{}\"]", "x".repeat(length)));
        let check = |_: &Problem| -> Result<(), RowError> { Ok(()) };
        let mut reading = Reading::new(&check);
        json::read_within(&path, &mut reading, bounds).map(|()| reading.finish())
    };
    assert_eq!(read(bounds.row / 2).unwrap().bad.len(), 1, "a row, but not an object");
    let error = error_text::chain(&read(bounds.row).unwrap_err());
    assert!(error.contains("too long"), "{error}");
}

#[test]
fn columns_have_one_bound_together() {
    let dir = tempfile::tempdir().unwrap();
    let columns =
        json!({"id": ["a"], "problem_statement": ["q"], "ground_truth": ["t"]}).to_string();
    let path = file(&dir, "rows.json", &columns);
    let read = |most| {
        let check = |_: &Problem| -> Result<(), RowError> { Ok(()) };
        let mut reading = Reading::new(&check);
        let bounds = json::Bounds { row: LARGEST_ROW, columns: most };
        json::read_within(&path, &mut reading, bounds).map(|()| reading.finish())
    };
    assert_eq!(ids(&read(columns.len()).unwrap()), ["a"]);
    assert!(matches!(read(columns.len() - 10), Err(RowsError::Json { .. })));
}

#[test]
fn other_files_are_refused() {
    assert!(refusal("rows.csv", "a,b").contains(".jsonl, .json or .parquet"));
    assert!(refusal("rows", "").contains("not a data file"));
    let missing = read_rows(Path::new("/nonexistent/rows.jsonl")).unwrap_err();
    assert!(missing.to_string().starts_with("cannot read /nonexistent/rows.jsonl"));
}

#[test]
fn many_bad_rows_do_not_fill_the_memory() {
    let rows = read("rows.jsonl", "1\n".repeat(5000)).unwrap();
    assert_eq!(rows.bad.len(), MAX_REPORTED);
    assert!(rows.bad.last().unwrap().why.ends_with("4000 more bad rows follow"));
}

#[test]
fn the_digest_tells_files_apart() {
    let digest = |text: &str| read("rows.jsonl", text).unwrap().sha256;
    assert_eq!(digest("\n"), digest("\n"));
    assert_ne!(digest("\n"), digest("\n\n"));
    // The digest of the file as any tool would print it.
    assert_eq!(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

fn parquet_file(path: &Path, compression: Compression, rows: &[[&str; 4]]) {
    let schema =
        "message rows { required binary id (UTF8); required binary problem_statement (UTF8);
        required binary ground_truth (UTF8); required binary input_files (UTF8); }";
    let rows: Vec<[&[u8]; 4]> = rows.iter().map(|row| row.map(str::as_bytes)).collect();
    parquet_file_of(path, schema, compression, &rows);
}

fn parquet_file_of<const N: usize>(
    path: &Path,
    schema: &str,
    compression: Compression,
    rows: &[[&[u8]; N]],
) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let file = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, properties).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut at = 0;
    while let Some(mut column) = group.next_column().unwrap() {
        let values: Vec<ByteArray> = rows.iter().map(|row| row[at].to_vec().into()).collect();
        column.typed::<ByteArrayType>().write_batch(&values, None, None).unwrap();
        column.close().unwrap();
        at += 1;
    }
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn parquet_is_read_in_every_compression_we_have() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.parquet");
    let gzip = Compression::GZIP(Default::default());
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, gzip, Compression::LZ4_RAW]
    {
        let files = r#"{"a.txt": "text"}"#;
        let rows = [["a", "q", "t", files], ["b", "", "t", ""], ["c", "r", "u", ""]];
        parquet_file(&path, compression, &rows);
        let rows = read_rows(&path).unwrap();
        assert_eq!(ids(&rows), ["a", "c"], "{compression}");
        assert_eq!(rows.problems[0].files["a.txt"], "text");
        assert_eq!((rows.bad.len(), rows.bad[0].row), (1, 2));
    }
}

#[test]
fn rows_of_parquet_have_a_bound_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.parquet");
    let statement = "x".repeat(1 << 19);
    let ids: Vec<String> = (0..50).map(|id| id.to_string()).collect();
    let rows: Vec<_> = ids.iter().map(|id| [id.as_str(), &statement, "t", ""]).collect();
    parquet_file(&path, Compression::UNCOMPRESSED, &rows);
    let stored = fs::metadata(&path).unwrap().len();
    assert!(stored < 4 << 20, "the statement is stored once, {stored} bytes");
    let read = |most| {
        let check = |_: &Problem| -> Result<(), RowError> { Ok(()) };
        let mut reading = Reading::new(&check);
        parquet::read_at_most(&path, &mut reading, most).map(|()| reading.finish())
    };
    assert_eq!(read(30 << 20).unwrap().problems.len(), 50);
    let error = read(20 << 20).unwrap_err().to_string();
    assert!(error.contains("its rows have more than 20971520 bytes together"), "{error}");
}

#[test]
fn bytes_in_parquet_are_text_where_they_can_be() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.parquet");
    let schema = "message rows { required binary id; required binary problem_statement;
        required binary ground_truth; required binary input_files; required binary picture; }";
    let rows: [[&[u8]; 5]; 2] =
        [[b"a", "é?".as_bytes(), b"t", b"", b"\xff\xd8"], [b"b", b"\xff", b"t", b"", b""]];
    parquet_file_of(&path, schema, Compression::UNCOMPRESSED, &rows);
    let rows = read_rows(&path).unwrap();
    assert_eq!(ids(&rows), ["a"]);
    assert_eq!(rows.problems[0].statement, "é?");
    assert_eq!(rows.problems[0].extra["picture"], Value::Null);
    assert_eq!(rows.bad[0].why, "field `problem_statement` is null, not a string");
}

#[test]
fn damaged_parquet_is_an_error_whatever_the_damage() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rows.parquet");
    parquet_file(&path, Compression::SNAPPY, &[["a", "q", "t", ""], ["b", "r", "t", ""]]);
    let whole = fs::read(&path).unwrap();
    for end in [0, 3, 8, whole.len() / 2, whole.len() - 1] {
        let error = refusal("rows.parquet", &whole[..end]);
        assert!(error.contains("is damaged or not a Parquet file"), "{end}: {error}");
    }
    assert!(refusal("rows.parquet", row("a").to_string()).contains("not a Parquet file"));
    for at in (0..whole.len()).step_by(5) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        // Any result will do, as long as there is one.
        let _ = read("rows.parquet", damaged);
    }
}
