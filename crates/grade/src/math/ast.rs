//! The parse tree of an answer, before any interpretation.
//!
//! Nodes live in an arena and refer to each other by index; a subscript is stored as a range of tokens because only its
//! spelling matters.

/// Index of a node in the arena of its parse.
pub(super) type Id = u32;

/// A half-open range of tokens.
pub(super) type Span = (u32, u32);

/// Binary operators of sums and products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
}

/// Bracketed or one-sided forms around a single expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrap {
    Negate,
    Norm,
    Abs,
    /// `\langle x \rangle`: parsed, but without a meaning.
    Angle,
    Floor,
    Ceil,
    Factorial,
    Transpose,
}

/// Relation signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sign {
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
    Superset,
    Subset,
}

/// Operations on sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetOp {
    Union,
    Intersection,
    Minus,
}

/// A part of an answer.
#[derive(Clone, Debug)]
pub(super) enum Node {
    Binary(Operator, Id, Id),
    Wrapped(Wrap, Id),
    /// Juxtaposed factors: those before the last, and the last.
    Product(Id, Id),
    Power(Id, Id),
    /// `expression|_{a}^{b}`: the expression, the lower and the upper point.
    EvalAt(Id, Option<Id>, Option<Id>),
    /// A letter, Greek letter, other symbol or accent, with sub- and superscript.
    Symbol {
        token: u32,
        sub: Option<Span>,
        sup: Option<Id>,
    },
    /// Any other one-token atom.
    Token(u32),
    Frac {
        upper: Id,
        lower: Id,
        upper_span: Span,
        lower_span: Span,
    },
    Binom(Id, Id),
    /// A named function: its name's token, subscript expression, superscript, argument.
    Function {
        name: u32,
        sub: Option<Id>,
        sup: Option<Id>,
        arg: Id,
    },
    /// The same, with the arguments as tokens.
    ManyFunction {
        name: u32,
        sup: Option<Id>,
        args: Span,
    },
    /// A symbol applied to arguments: the tokens of its name and of its arguments.
    Call {
        name: Span,
        sup: Option<Id>,
        args: Span,
    },
    Integral {
        lower: Option<Id>,
        upper: Option<Id>,
        body: Option<Id>,
        variable: Option<u32>,
    },
    Root {
        degree: Option<Id>,
        base: Id,
    },
    /// A sum or product: its command's token, the running equality, the end, the body.
    Series {
        command: u32,
        from: Id,
        to: Id,
        body: Id,
    },
    Limit {
        variable: u32,
        place: Id,
        body: Id,
    },
    Exponential(Option<Id>),
    Matrix(Vec<Vec<Id>>),
    Determinant(Vec<Vec<Id>>),
    /// `a = b` inside a subscript.
    Equality(Id, Id),

    Relation(Sign, Id, Id),
    /// Names on the left of `=` or `\in` at the top: one, or a parenthesised list.
    Names(Vec<Id>),
    PlusMinus(Option<Id>, Id),
    /// Elements separated by semicolons, each a comma list.
    Elements(Vec<Vec<Id>>),
    Interval {
        left_open: bool,
        right_open: bool,
        from: Id,
        to: Id,
    },
    Tuple(Id),
    Braces(Id),
    BoxedSet(Id),
    /// A set named by one token, or the empty braces.
    SetName(Option<u32>),
    SetBinary(SetOp, Id, Id),
}
