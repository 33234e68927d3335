//! Cuts LaTeX into tokens: at each place the longest match wins, then the earlier rule. Commands need no
//! delimiter (`\sinx` is `\sin` and `x`), and `d` before a letter is a differential.
//!
//! It knows spelling only; whether the tokens make sense is the grammar's business.

use std::collections::HashMap;
use std::sync::LazyLock;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Transpose,
    Degree,
    Skip,
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    LParen,
    RParen,
    LParenVisual,
    RParenVisual,
    LGroup,
    RGroup,
    LBrace,
    RBrace,
    LBraceVisual,
    RBraceVisual,
    LBraceCmd,
    RBraceCmd,
    LBracket,
    RBracket,
    LBrack,
    RBrack,
    Phantom,
    Boxed,
    Bar,
    LVert,
    RVert,
    Vert,
    Norm,
    LAngle,
    RAngle,
    LFloor,
    RFloor,
    LlCorner,
    LrCorner,
    LCeil,
    RCeil,
    UlCorner,
    UrCorner,
    Lim,
    Approach,
    Int,
    Sum,
    Prod,
    /// A function of one argument, such as `\sin`.
    Function,
    Gamma,
    /// A function of several arguments, such as `\max`.
    ManyFunction,
    Sqrt,
    /// A bare name only `\operatorname` may hold, one argument.
    Name,
    /// The same, several arguments.
    ManyName,
    OperatorName,
    Frac,
    Binom,
    Choose,
    MatrixStart,
    MatrixEnd,
    ArrayStart,
    ArrayEnd,
    DetStart,
    DetEnd,
    NextColumn,
    NextRow,
    Underscore,
    Caret,
    Semicolon,
    Comma,
    Differential,
    ExpE,
    BigE,
    Letter,
    Number,
    Scientific,
    Percent,
    In,
    NotIn,
    Assign,
    Equal,
    Approx,
    Less,
    LessEq,
    Greater,
    GreaterEq,
    Unequal,
    Bang,
    Greek,
    OtherSymbol,
    Infinity,
    Partial,
    Naturals,
    Integers,
    Rationals,
    Reals,
    Complexes,
    Primes,
    Accent,
    Union,
    Intersection,
    SetMinus,
    PlusMinus,
    Empty,
    Superset,
    Subset,
    /// A spelling the tokens know and no sentence uses.
    Useless,
    End,
}

/// A token and its place in the text, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The tokens of `text`, blanks left out, or nothing where a character fits no token or there are too many.
pub(super) fn tokens(text: &str, most: usize) -> Option<Vec<Token>> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (kind, length) = next(&text[at..])?;
        if kind != Kind::Skip {
            if out.len() == most {
                return None;
            }
            out.push(Token { kind, start: at, end: at + length });
        }
        at += length;
    }
    Some(out)
}

fn next(rest: &str) -> Option<(Kind, usize)> {
    let first = rest.chars().next()?;
    match first {
        ' ' | '\t' | '\r' | '\n' => {
            let blank = rest.trim_start_matches([' ', '\t', '\r', '\n']);
            Some((Kind::Skip, rest.len() - blank.len()))
        }
        '\\' => command(rest),
        '0'..='9' | '.' => number(rest),
        'a'..='z' | 'A'..='Z' => word(rest),
        '^' => Some(longest(rest, &CARETS).unwrap_or((Kind::Caret, 1))),
        '<' | '=' | '>' | '!' | '~' => longest(rest, &OPERATORS),
        _ => single(first).map(|(kind, may_trail)| {
            let length = first.len_utf8();
            (kind, length + usize::from(may_trail && rest[length..].starts_with(' ')))
        }),
    }
}

fn longest(rest: &str, table: &[(&str, Kind)]) -> Option<(Kind, usize)> {
    table.iter().filter(|(text, _)| rest.starts_with(text)).map(|(text, kind)| (*kind, text.len())).max_by_key(|found| found.1)
}

const CARETS: [(&str, Kind); 11] = [
    ("^T", Kind::Transpose),
    ("^{T}", Kind::Transpose),
    ("^{\\\top}", Kind::Transpose),
    ("^\\circ", Kind::Degree),
    ("^\\degree", Kind::Degree),
    ("^\\circle", Kind::Degree),
    ("^°", Kind::Degree),
    ("^{\\circ}", Kind::Degree),
    ("^{\\degree}", Kind::Degree),
    ("^{\\circle}", Kind::Degree),
    ("^{°}", Kind::Degree),
];

const OPERATORS: [(&str, Kind); 12] = [
    ("<->", Kind::Useless),
    ("<=>", Kind::Useless),
    ("<=", Kind::LessEq),
    ("<", Kind::Less),
    (">=", Kind::GreaterEq),
    (">", Kind::Greater),
    ("==", Kind::Equal),
    ("=", Kind::Assign),
    ("!==", Kind::Unequal),
    ("!=", Kind::Unequal),
    ("!", Kind::Bang),
    ("~=", Kind::Approx),
];

/// One-character tokens, and whether a blank after the character belongs to it.
fn single(c: char) -> Option<(Kind, bool)> {
    Some(match c {
        '\'' => (Kind::Transpose, false),
        '+' | '∔' | '⊕' | '⊞' => (Kind::Add, false),
        '-' | '−' | '∸' => (Kind::Sub, false),
        '*' | '×' | '∗' | '∘' | '∙' | '⊗' | '⊠' | '⊡' | '⋄' | '⋅' | '⋆' | '⋈' | '⋉' | '⋊' => (Kind::Mul, false),
        '/' | '÷' | '∕' | ':' => (Kind::Div, false),
        '(' => (Kind::LParen, false),
        ')' => (Kind::RParen, false),
        '{' => (Kind::LBrace, false),
        '}' => (Kind::RBrace, false),
        '[' => (Kind::LBracket, false),
        ']' => (Kind::RBracket, false),
        '|' => (Kind::Bar, false),
        '&' => (Kind::NextColumn, false),
        '_' => (Kind::Underscore, false),
        ';' => (Kind::Semicolon, false),
        ',' => (Kind::Comma, false),
        '≎'..='≗' | '≟' | '≡' | '≣' => (Kind::Assign, false),
        '≃' | '≅' | '≈' | '≊' | '≋' => (Kind::Approx, false),
        '≪' | '≺' | '⋖' => (Kind::Less, false),
        '≤' | '≦' | '≲' | '≾' => (Kind::LessEq, false),
        '≫' | '≻' | '⋗' => (Kind::Greater, false),
        '≥' | '≧' | '≳' | '≿' => (Kind::GreaterEq, false),
        '≁' | '≄' | '≇' | '≉' | '≠' | '≢' => (Kind::Unequal, false),
        'ℕ' => (Kind::Naturals, false),
        'ℤ' => (Kind::Integers, false),
        'ℚ' => (Kind::Rationals, false),
        'ℝ' => (Kind::Reals, false),
        'ℂ' => (Kind::Complexes, false),
        'ℙ' => (Kind::Primes, false),
        '∪' => (Kind::Union, false),
        '∩' => (Kind::Intersection, false),
        '∖' => (Kind::SetMinus, false),
        '±' | '∓' => (Kind::PlusMinus, false),
        '∅' => (Kind::Empty, false),
        '⊇' => (Kind::Superset, false),
        '⊆' => (Kind::Subset, false),
        '∉' => (Kind::NotIn, false),
        'ℵ' | 'ℶ' | 'ℷ' | 'ℸ' => (Kind::OtherSymbol, true),
        _ if "αβγΓδΔεϵζηθΘϑικλΛμνξΞοπΠϖρϱσΣςτυΥφΦϕχψΨωΩ".contains(c) => (Kind::Greek, true),
        _ => return None,
    })
}

fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

fn number(rest: &str) -> Option<(Kind, usize)> {
    let whole = digits(rest);
    let mut length = whole;
    if rest[whole..].starts_with('.') {
        let decimals = digits(&rest[whole + 1..]);
        if decimals > 0 {
            length += 1 + decimals;
        } else if whole == 0 {
            return Some((Kind::Useless, 1));
        }
    }
    let after = &rest[length..];
    if let Some(exponent) = after.strip_prefix('E') {
        let sign = exponent.chars().next().filter(|c| "+∔⊕⊞-−∸".contains(*c)).map_or(0, char::len_utf8);
        let count = digits(&exponent[sign..]);
        if count > 0 {
            return Some((Kind::Scientific, length + 1 + sign + count));
        }
    }
    let blank = usize::from(after.starts_with([' ', '\t', '\r', '\n']));
    for sign in ["\\%", "%"] {
        if after[blank..].starts_with(sign) {
            return Some((Kind::Percent, length + blank + sign.len()));
        }
    }
    Some((Kind::Number, length))
}

const WORDS: [(&str, Kind); 42] = [
    ("arsinh", Kind::Name),
    ("arcsinh", Kind::Name),
    ("arcosh", Kind::Name),
    ("arccosh", Kind::Name),
    ("artanh", Kind::Name),
    ("arctanh", Kind::Name),
    ("gcd", Kind::ManyName),
    ("lcm", Kind::ManyName),
    ("floor", Kind::Name),
    ("ceil", Kind::Name),
    ("eye", Kind::Name),
    ("zeros", Kind::ManyName),
    ("ones", Kind::ManyName),
    ("cols", Kind::Name),
    ("rows", Kind::Name),
    ("diag", Kind::ManyName),
    ("norm", Kind::Name),
    ("rank", Kind::Name),
    ("trace", Kind::Name),
    ("tr", Kind::Name),
    ("rref", Kind::Name),
    ("hstack", Kind::ManyName),
    ("vstack", Kind::ManyName),
    ("orth", Kind::ManyName),
    ("ortho", Kind::ManyName),
    ("orthogonal", Kind::ManyName),
    ("orthogonalize", Kind::ManyName),
    ("nullspace", Kind::Name),
    ("eig", Kind::Name),
    ("eigen", Kind::Name),
    ("diagonalize", Kind::Name),
    ("eigenvals", Kind::Name),
    ("eigenvalues", Kind::Name),
    ("eigenvects", Kind::Name),
    ("eigenvectors", Kind::Name),
    ("svd", Kind::Name),
    ("SVD", Kind::Name),
    ("matrix", Kind::Useless),
    ("pmatrix", Kind::Useless),
    ("bmatrix", Kind::Useless),
    ("vmatrix", Kind::Useless),
    ("E", Kind::BigE),
];

fn word(rest: &str) -> Option<(Kind, usize)> {
    let single = match rest.as_bytes()[0] {
        b'e' => (Kind::ExpE, 1),
        b'd' => (Kind::Letter, 1).max_length(differential(rest)),
        _ => (Kind::Letter, 1),
    };
    // A name as long as a differential loses to it only if it were declared later; every name comes first.
    Some(match longest(rest, &WORDS) {
        Some(named) if named.1 >= single.1 => named,
        _ => single,
    })
}

trait Longer {
    fn max_length(self, other: Option<usize>) -> Self;
}

impl Longer for (Kind, usize) {
    fn max_length(self, other: Option<usize>) -> Self {
        other.map_or(self, |length| (Kind::Differential, length))
    }
}

fn differential(rest: &str) -> Option<usize> {
    let after = rest[1..].trim_start_matches([' ', '\t', '\r', '\n']);
    let blank = rest.len() - 1 - after.len();
    if after.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some(1 + blank + 1);
    }
    let letters = letters(after.strip_prefix('\\')?);
    (letters > 0).then_some(1 + blank + 1 + letters)
}

fn letters(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_alphabetic).count()
}

static COMMANDS: LazyLock<HashMap<&'static str, Kind>> = LazyLock::new(|| {
    let mut table = HashMap::new();
    for (kind, names) in COMMAND_NAMES {
        for name in names.split(' ') {
            table.entry(name).or_insert(kind);
        }
    }
    table
});

const COMMAND_NAMES: [(Kind, &str); 69] = [
    (Kind::Skip, "thinspace medspace thickspace quad qquad negthinspace negmedspace negthickspace"),
    (Kind::Skip, "vrule vcenter vbox vskip vspace hfil"),
    (Kind::Div, "over div"),
    (Kind::LGroup, "lgroup"),
    (Kind::RGroup, "rgroup"),
    (Kind::LBraceCmd, "lbrace"),
    (Kind::RBraceCmd, "rbrace"),
    (Kind::LBrack, "lbrack"),
    (Kind::RBrack, "rbrack"),
    (Kind::Phantom, "phantom"),
    (Kind::Boxed, "boxed"),
    (Kind::LVert, "lvert"),
    (Kind::RVert, "rvert"),
    (Kind::Vert, "vert"),
    (Kind::LAngle, "langle"),
    (Kind::RAngle, "rangle"),
    (Kind::LFloor, "lfloor"),
    (Kind::RFloor, "rfloor"),
    (Kind::LlCorner, "llcorner"),
    (Kind::LrCorner, "lrcorner"),
    (Kind::LCeil, "lceil"),
    (Kind::RCeil, "rceil"),
    (Kind::UlCorner, "ulcorner"),
    (Kind::UrCorner, "urcorner"),
    (Kind::Lim, "lim"),
    (Kind::Approach, "to rightarrow Rightarrow longrightarrow Longrightarrow"),
    (Kind::Int, "int"),
    (Kind::Sum, "sum"),
    (Kind::Prod, "prod"),
    (Kind::Function, "log ln exp sin cos tan csc sec cot arcsin arccos arctan arccsc arcsec arccot sinh cosh tanh"),
    (Kind::Function, "arsinh arcosh artanh arcsinh arccosh arctanh floor ceil det"),
    (Kind::Gamma, "Gamma gamma"),
    (Kind::Sqrt, "sqrt"),
    (Kind::ManyFunction, "gcd lcm max min"),
    (Kind::Mul, "times cdot"),
    (Kind::Frac, "frac dfrac tfrac cfrac"),
    (Kind::Binom, "binom tbinom dbinom"),
    (Kind::Choose, "choose"),
    (Kind::Mod, "mod"),
    (Kind::Useless, "mathit xrightarrow xRightarrow leftrightarrow Leftrightarrow"),
    (Kind::OperatorName, "operatorname"),
    (Kind::ExpE, "exponentialE"),
    (Kind::In, "in"),
    (Kind::Equal, "equiv"),
    (Kind::Approx, "approx"),
    (Kind::Less, "lt"),
    (Kind::LessEq, "leq le leqslant"),
    (Kind::Greater, "gt"),
    (Kind::GreaterEq, "geq ge geqslant"),
    (Kind::Unequal, "ne neq"),
    (Kind::Greek, "alpha beta delta Delta epsilon varepsilon zeta eta theta Theta vartheta iota kappa lambda Lambda mu nu xi Xi"),
    (Kind::Greek, "omicron pi Pi varpi rho varrho sigma Sigma varsigma tau upsilon Upsilon phi Phi varphi chi psi Psi omega Omega"),
    (Kind::OtherSymbol, "Bbbk wp nabla bigstar angle nexists diagdown measuredangle eth diagup sphericalangle clubsuit"),
    (Kind::OtherSymbol, "varnothing Diamond complement diamondsuit imath Finv triangledown heartsuit jmath Game triangle"),
    (Kind::OtherSymbol, "spadesuit ell hbar vartriangle hslash blacklozenge lozenge blacksquare mho blacktriangle sharp"),
    (Kind::OtherSymbol, "prime Im flat square backprime Re natural surd circledS"),
    (Kind::Infinity, "infty"),
    (Kind::Partial, "partial"),
    (Kind::Union, "cup"),
    (Kind::Intersection, "cap"),
    (Kind::SetMinus, "setminus"),
    (Kind::PlusMinus, "pm mp"),
    (Kind::Empty, "emptyset"),
    (Kind::Superset, "supseteq"),
    (Kind::Subset, "subseteq"),
    (Kind::NotIn, "notin"),
    (Kind::Accent, ACCENTS[0]),
    (Kind::Accent, ACCENTS[1]),
    (Kind::Accent, ACCENTS[2]),
];

const ACCENTS: [&str; 3] = [
    "acute bar overline breve check widecheck dot ddot grave hat tilde widetilde vec overrightarrow bm boldsymbol",
    "text textit textbf textnormal mathbb mathbin mathbf mathcal mathclap mathclose mathellipsis mathfrak mathinner mathnormal mathop",
    "mathopen mathord mathpunct mathrel mathring mathrlap mathrm mathscr mathsf mathsterling mathtt mbox",
];

const LONGEST_COMMAND: usize = 16;

fn command(rest: &str) -> Option<(Kind, usize)> {
    let after = &rest[1..];
    let run = letters(after);
    if run == 0 {
        return punctuation(rest);
    }
    if let Some(found) = with_braces(rest, run) {
        return Some(found);
    }
    for length in (1..=run.min(LONGEST_COMMAND)).rev() {
        match COMMANDS.get(&after[..length]) {
            None | Some(Kind::Accent) => {}
            Some(kind) => return Some(extended(rest, *kind, 1 + length)),
        }
    }
    None
}

/// A known command, with what may belong to it: a blank after a Greek letter, a percent sign after infinity.
fn extended(rest: &str, kind: Kind, length: usize) -> (Kind, usize) {
    let after = &rest[length..];
    match kind {
        Kind::Greek | Kind::OtherSymbol => (kind, length + usize::from(after.starts_with(' '))),
        Kind::Gamma if after.starts_with(' ') => (Kind::Greek, length + 1),
        Kind::Infinity if after.starts_with("\\%") => (kind, length + 2),
        Kind::Infinity if after.starts_with('%') => (kind, length + 1),
        Kind::LBraceCmd if after.starts_with("\\rbrace") => (Kind::Empty, length + 7),
        _ => (kind, length),
    }
}

fn punctuation(rest: &str) -> Option<(Kind, usize)> {
    if rest.starts_with("\\$\\infty") {
        return Some((Kind::Infinity, "\\$\\infty".len()));
    }
    if rest.starts_with("\\{\\}") {
        return Some((Kind::Empty, 4));
    }
    let kind = match rest.as_bytes().get(1)? {
        b',' | b':' | b';' | b'!' | b'$' => Kind::Skip,
        b'(' => Kind::LParenVisual,
        b')' => Kind::RParenVisual,
        b'{' => Kind::LBraceVisual,
        b'}' => Kind::RBraceVisual,
        b'|' => Kind::Norm,
        b'\\' => Kind::NextRow,
        _ => return None,
    };
    Some((kind, 2))
}

/// Tokens that take a brace group: accents, environments, the number sets, and `\not\equiv`.
fn with_braces(rest: &str, run: usize) -> Option<(Kind, usize)> {
    let name = &rest[1..=run];
    let after = &rest[1 + run..];
    match name {
        "begin" | "end" => return environment(rest, name, after),
        "not" if after.starts_with("\\equiv") => return Some((Kind::Unequal, "\\not\\equiv".len())),
        "mathbb" => {
            let set = match after.get(..3) {
                Some("{N}") => Some(Kind::Naturals),
                Some("{Z}") => Some(Kind::Integers),
                Some("{Q}") => Some(Kind::Rationals),
                Some("{R}") => Some(Kind::Reals),
                Some("{C}") => Some(Kind::Complexes),
                Some("{P}") => Some(Kind::Primes),
                _ => None,
            };
            if let Some(set) = set {
                return Some((set, rest.len() - after.len() + 3));
            }
        }
        _ => {}
    }
    if name != "mathit" && COMMANDS.get(name) != Some(&Kind::Accent) {
        return None;
    }
    let blank = usize::from(after.starts_with([' ', '\t', '\r', '\n']));
    let inner = after[blank..].strip_prefix('{')?;
    let close = inner.find('}')?;
    Some((Kind::Accent, rest.len() - inner.len() + close + 1))
}

fn environment(rest: &str, name: &str, after: &str) -> Option<(Kind, usize)> {
    let inner = after.strip_prefix('{')?;
    let close = inner.find('}')?;
    let starts = name == "begin";
    let mut end = rest.len() - inner.len() + close + 1;
    let kind = match &inner[..close] {
        "matrix" | "pmatrix" | "bmatrix" => if starts { Kind::MatrixStart } else { Kind::MatrixEnd },
        "vmatrix" => if starts { Kind::DetStart } else { Kind::DetEnd },
        "array" if starts => {
            let columns = rest[end..].strip_prefix('{')?;
            let count = columns.bytes().take_while(|byte| b"clr".contains(byte)).count();
            columns[count..].strip_prefix('}')?;
            end += count + 2;
            Kind::ArrayStart
        }
        "array" => Kind::ArrayEnd,
        _ => return None,
    };
    Some((kind, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(text: &str) -> Option<Vec<Kind>> {
        Some(tokens(text, 100)?.into_iter().map(|token| token.kind).collect())
    }

    #[test]
    fn the_longest_match_wins() {
        use Kind::{Accent, Differential, ExpE, Function, Greek, Infinity, Letter, Name, Number, Percent, Scientific};
        assert_eq!(kinds(r"\sinx"), Some(vec![Function, Letter]));
        assert_eq!(kinds("dog"), Some(vec![Differential, Letter]));
        assert_eq!(kinds("3.5E-2"), Some(vec![Scientific]));
        assert_eq!(kinds("3 %"), Some(vec![Percent]));
        assert_eq!(kinds("1.2.3"), Some(vec![Number, Number]));
        assert_eq!(kinds(r"\text{a b}\gamma x"), Some(vec![Accent, Greek, Letter]));
        assert_eq!(kinds(r"\infty\%e"), Some(vec![Infinity, ExpE]));
        assert_eq!(kinds("trace"), Some(vec![Name]));
        assert_eq!(kinds("?"), None);
        assert_eq!(kinds(r"\unknown"), None);
    }
}
