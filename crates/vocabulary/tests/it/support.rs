//! The models for tests, visible skips, and texts that are difficult for tokenizers.

use std::path::PathBuf;

/// The GGUF file that a variable names; none with a visible skip.
#[expect(clippy::disallowed_methods, reason = "how tests are run is told by the environment")]
pub(crate) fn file(variable: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let required = std::env::var("LIS_REQUIRE").unwrap_or_default();
    let required = required.split(',').any(|name| name.trim() == "gguf");
    assert!(!required, "gguf is required, but {variable} names no file");
    eprintln!("skip: gguf: {variable} names no file");
    None
}

/// The variables that name models: a large and a tiny one, of different kinds.
pub(crate) const MODELS: [&str; 2] = ["LIS_TEST_GGUF", "LIS_TEST_TINY_GGUF"];

/// Texts that are difficult for tokenizers.
pub(crate) const TEXTS: [&str; 40] = [
    "",
    " ",
    "Hello, world!",
    "  two blanks, three   blanks, and one at the end ",
    "\n",
    "\n\n\n",
    "a\n\n  b\n\t\tc\r\nd\r\n\r\ne",
    " \n \n ",
    "\t \t",
    "it's I'LL we'Ve they'd don't 'tis 's 'S 'ſ",
    "1234567890 1,234.5678 ½ ² ٣٤ ௩ Ⅷ 3x4 a1b22c333",
    "naïve café — “quoted” … ‘single’",
    "cafe\u{301} a\u{308}\u{323} \u{301}alone",
    "日本語のテキスト。中文,한국어",
    "😀👩‍👩‍👧‍👦🏳️‍🌈👍🏽",
    "עברית العربية \u{202e}reversed\u{202c}",
    "\u{a0}nbsp\u{a0}\u{2003}em\u{3000}ideographic\u{200b}zero\u{feff}bom",
    "\u{2028}line\u{2029}paragraph\u{85}next\u{c}feed\u{b}tab",
    "\u{0}\u{1}\u{7f}\u{80}\u{9f}",
    "\u{fdd0}\u{fffe}\u{10ffff}\u{e000}\u{378}",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|><|im_end|> <|im_end|>\n\n<|endoftext|>x",
    "<|im_end| ><|im_",
    "<|im_start|<|im_start|>|>",
    "fn main() { println!(\"{:?}\", vec![1, 2]); } // é",
    "    indented\n        more\n\tand a tab\n  end",
    "#!/bin/bash\nset -euo pipefail\ngrep -c 'x' \"$1\" | awk '{ s += $1 } END { print s }'\n```",
    "```bash\nls -la /testbed/input | head -n 5\n```",
    "{\"a\": [1, 2.5e-3, null], \"b\": \"\\u00e9\\n\"}",
    "SELECT * FROM t WHERE a<>'b' AND c>=10;--",
    "https://example.com/a_b-c?d=e&f=%20#g",
    "CamelCaseAndSNAKE_CASE and kebab-case",
    "!!!???...,,,;;;:::---___===+++***",
    "a.b.c  d..e   f...g",
    "ＦＵＬＬｗｉｄｔｈ １２３",
    "ﷺ ǅ ß ẞ İ ı ſ Ω K",
    "x\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}",
    "\\boxed{\\frac{1}{2}} $x^2 + y_i \\leq 10^{-3}$",
    "[3 steps remaining]\n[exit code 0]",
    "ends with many blanks            ",
];
