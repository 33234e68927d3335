//! Interprets single tokens, functions and their arguments.
//!
//! Symbols are lower-cased as in the reference; an unknown function keeps its name.

use std::rc::Rc;

use num_traits::{One, ToPrimitive, Zero};

use super::ast::{Id, Node, Span};
use super::convert::{Converter, DEEPER, number, read_nested, truthy};
use super::eval;
use super::expr::{Constant, Expr, Fun};
use super::lex::Kind;
use super::number::{Rat, integer};

impl Converter<'_> {
    pub(super) fn atom(&self, token: u32) -> Option<Expr> {
        let text = self.token_text(token);
        match self.kind(token) {
            Kind::Number | Kind::Scientific => number(text),
            Kind::Percent => number(text.trim_end_matches(['\\', '%'])).map(Expr::percent),
            Kind::Infinity => {
                // A stray percent sign is dropped only in its escaped form.
                if text.ends_with('%') && !text.ends_with("\\%") {
                    None
                } else {
                    Some(Expr::Constant(Constant::Infinity))
                }
            }
            Kind::BigE => Some(self.symbol("e")),
            Kind::Differential => Some(self.symbol(&format!("d{}", differential_name(text)))),
            Kind::Gamma => Some(Expr::Constant(Constant::EulerGamma)),
            _ => None,
        }
    }

    pub(super) fn letter(&self, token: u32, sub: Option<Span>, sup: Option<Id>) -> Option<Expr> {
        let text = self.token_text(token);
        let name = match self.kind(token) {
            Kind::Accent => accented(text)?,
            Kind::Letter if text == "I" => return Some(Expr::Constant(Constant::I)),
            _ => text.to_owned(),
        };
        let symbol =
            self.named(&format!("{}{}", name.trim_matches(super::is_space), self.subscript(sub)));
        match sup {
            None => Some(symbol),
            Some(sup) => Some(Expr::pow(symbol, self.scalar(sup)?)),
        }
    }

    /// `_x` or `_{xy}` as it becomes part of a name.
    fn subscript(&self, sub: Option<Span>) -> String {
        let Some((start, end)) = sub else { return String::new() };
        let braced = self.kind(start + 1) == Kind::LBrace && self.kind(end - 1) == Kind::RBrace;
        let inner = if braced { (start + 2, end - 1) } else { (start + 1, end) };
        let text = self.span_text(inner);
        let text = text.trim_matches(super::is_space);
        if text.chars().nth(1).is_some() { format!("_{{{text}}}") } else { format!("_{text}") }
    }

    /// The symbol or constant of a name.
    pub(super) fn named(&self, text: &str) -> Expr {
        let text = text.trim_matches(super::is_space);
        let greek = greek(&text.replace('"', ""));
        let name = greek.unwrap_or_else(|| text.strip_prefix('\\').unwrap_or(text));
        for name in [name, &name.to_lowercase()] {
            match name {
                "pi" => return Expr::Constant(Constant::Pi),
                "gamma" | "Gamma" => return Expr::Constant(Constant::EulerGamma),
                _ => {}
            }
        }
        self.symbol(&name.to_lowercase())
    }

    pub(super) fn frac(
        &self,
        upper: Id,
        lower: Id,
        upper_span: Span,
        lower_span: Span,
    ) -> Option<Expr> {
        if lower_span.1 - lower_span.0 == 1 && self.kind(lower_span.0) == Kind::Differential {
            let variable = differential_name(self.token_text(lower_span.0)).to_owned();
            let start = self.tokens[upper_span.0 as usize].start;
            let end = self.tokens[upper_span.1 as usize - 1].end;
            let top = &self.text[start..end];
            if upper_span.1 - upper_span.0 == 1 && top == "d" {
                // An operator, applied to the factors after it.
                return Some(Expr::Apply(Fun::Derivative, vec![self.symbol(&variable)]));
            }
            if let Some(rest) = top.strip_prefix('d') {
                let body = read_nested(rest, self.real, self.depth.get() + DEEPER)?;
                return Some(Expr::Apply(Fun::Derivative, vec![body, self.symbol(&variable)]));
            }
        }
        let (top, bottom) = (self.expr(upper)?, self.expr(lower)?);
        if matches!(top, Expr::Matrix { .. }) || matches!(bottom, Expr::Matrix { .. }) {
            return eval::matrix_operation(super::ast::Operator::Div, top, bottom);
        }
        Some(Expr::over(top, bottom))
    }

    pub(super) fn binomial(&self, n: Id, k: Id) -> Option<Expr> {
        let (n, k) = (self.scalar(n)?, self.scalar(k)?);
        match &k {
            Expr::Number(value) if value.is_zero() => return Some(Expr::int(1)),
            Expr::Number(value) if value.is_one() => return Some(n),
            _ => {}
        }
        let binomial = Expr::Apply(Fun::Binomial, vec![n, k]);
        Some(eval::exact(&binomial).map_or(binomial, Expr::Number))
    }

    pub(super) fn function(
        &self,
        name: u32,
        sub: Option<Id>,
        sup: Option<Id>,
        arg: Id,
    ) -> Option<Expr> {
        let value = self.expr(arg)?;
        let mut power = match sup {
            Some(sup) => Some(self.scalar(sup)?),
            None => None,
        };
        let bare = self.token_text(name).trim_start_matches('\\');
        let operator = self.kind(name) == Kind::Name;
        if let Expr::Matrix { .. } = value {
            let value = match bare {
                "det" => eval::determinant(&value),
                "trace" | "tr" => eval::trace(&value),
                _ => None,
            }?;
            return Some(powered(value, power));
        }
        let inverse = matches!(&power, Some(Expr::Number(value)) if *value == integer(-1));
        let fun = match bare {
            "floor" => Fun::Floor,
            "ceil" => Fun::Ceiling,
            "log" | "ln" if !operator => {
                let base = match sub {
                    Some(sub) => self.scalar(sub)?,
                    None if bare == "log" => Expr::int(10),
                    None => Expr::Constant(Constant::E),
                };
                return Some(powered(Expr::Apply(Fun::Log, vec![value, base]), power));
            }
            "exp" => return Some(powered(Expr::Apply(Fun::Exp, vec![value]), power)),
            "Gamma" | "gamma" => {
                let gamma = Expr::Apply(Fun::Gamma, vec![value]);
                return Some(powered(eval::exact(&gamma).map_or(gamma, Expr::Number), power));
            }
            "det" | "rank" | "trace" | "tr" | "rref" | "nullspace" | "norm" | "cols" | "rows"
            | "eig" | "eigen" | "diagonalize" | "eigenvals" | "eigenvalues" | "eigenvects"
            | "eigenvectors" | "svd" | "SVD" | "eye" => {
                return None;
            }
            _ => match (trigonometric(bare), inverse && bare.len() <= 4) {
                (Some((_, arc)), true) => {
                    power = None;
                    arc
                }
                (Some((plain, _)), false) => plain,
                (None, _) => arc_function(bare)?,
            },
        };
        Some(powered(Expr::Apply(fun, vec![value]), power))
    }

    fn texts_of(&self, args: Span) -> Option<Vec<Expr>> {
        let text = self.span_text(args);
        let mut parts: Vec<&str> = text.split(',').collect();
        if parts.last() == Some(&"") {
            parts.pop();
        }
        parts
            .into_iter()
            .map(|part| read_nested(part, self.real, self.depth.get() + DEEPER))
            .collect()
    }

    pub(super) fn many_function(&self, name: u32, sup: Option<Id>, args: Span) -> Option<Expr> {
        if args.0 == args.1 {
            return None;
        }
        let values = self.texts_of(args)?;
        let fun = match self.token_text(name).trim_start_matches('\\') {
            "gcd" => Fun::Gcd,
            "lcm" => Fun::Lcm,
            "max" => Fun::Max,
            "min" => Fun::Min,
            _ => return None,
        };
        let held = matches!(fun, Fun::Gcd | Fun::Lcm);
        let mut value = Expr::Apply(fun, values);
        if held {
            value = Expr::Held(Box::new(eval::exact(&value).map_or(value, Expr::Number)));
        }
        let power = match sup {
            Some(sup) => Some(self.scalar(sup)?),
            None => None,
        };
        Some(powered(value, power))
    }

    pub(super) fn call(&self, name: Span, sup: Option<Id>, args: Span) -> Option<Expr> {
        let name = self.span_text(name);
        let value = Expr::Apply(Fun::Named(Rc::from(name)), self.texts_of(args)?);
        match sup {
            None => Some(value),
            Some(sup) => Some(Expr::pow(value, self.scalar(sup)?)),
        }
    }

    pub(super) fn root(&self, degree: Option<Id>, base: Id) -> Option<Expr> {
        let base = self.scalar(base)?;
        let exponent = match degree {
            None => Expr::Number(Rat::new(1.into(), 2.into())),
            Some(degree) => match self.scalar(degree)? {
                Expr::Number(value) if value.is_zero() => Expr::Constant(Constant::ComplexInfinity),
                Expr::Number(value) => Expr::Number(value.recip()),
                other => Expr::pow(other, Expr::int(-1)),
            },
        };
        Some(Expr::pow(base, exponent))
    }

    pub(super) fn exponential(&self, sup: Option<Id>) -> Option<Expr> {
        let Some(sup) = sup else { return Some(Expr::Constant(Constant::E)) };
        let power = self.scalar(sup)?;
        Some(match &power {
            Expr::Number(value) if value.is_zero() => Expr::int(1),
            Expr::Number(value) if value.is_one() => Expr::Constant(Constant::E),
            Expr::Constant(Constant::Infinity) => power,
            Expr::Constant(Constant::MinusInfinity) => Expr::int(0),
            _ => Expr::Apply(Fun::Exp, vec![power]),
        })
    }

    pub(super) fn series(&self, command: u32, from: Id, to: Id, body: Id) -> Option<Expr> {
        let Node::Equality(variable, start) = self.get(from) else { return None };
        let variable = self.scalar(*variable)?;
        if !matches!(variable, Expr::Symbol(_)) {
            return None;
        }
        let fun = if self.kind(command) == Kind::Sum { Fun::Sum } else { Fun::Product };
        Some(Expr::Apply(
            fun,
            vec![self.scalar(body)?, variable, self.scalar(*start)?, self.scalar(to)?],
        ))
    }

    pub(super) fn limit(&self, variable: u32, place: Id, body: Id) -> Option<Expr> {
        let text = self.token_text(variable);
        let variable = match self.kind(variable) {
            Kind::Letter => self.symbol(text),
            _ => self.named(text),
        };
        Some(Expr::Apply(Fun::Limit, vec![self.scalar(body)?, variable, self.scalar(place)?]))
    }

    pub(super) fn integral(
        &self,
        lower: Option<Id>,
        upper: Option<Id>,
        body: Option<Id>,
        variable: Option<u32>,
    ) -> Option<Expr> {
        let mut body = match body {
            Some(body) => self.scalar(body)?,
            None => Expr::int(1),
        };
        let variable = match variable {
            Some(token) => self.symbol(differential_name(self.token_text(token))),
            None => {
                let found = body
                    .symbols()
                    .into_iter()
                    .find(|name| name.text.len() > 1 && name.text.starts_with('d'));
                match found {
                    Some(name) => {
                        body = eval::substitute(&body, &name, &Expr::int(1));
                        self.symbol(&name.text[1..])
                    }
                    None => self.symbol("x"),
                }
            }
        };
        let mut parts = vec![body, variable];
        if let (Some(lower), Some(upper)) = (lower, upper) {
            parts.push(self.scalar(lower)?);
            parts.push(self.scalar(upper)?);
        }
        Some(Expr::Apply(Fun::Integral, parts))
    }

    pub(super) fn eval_at(&self, inner: Id, low: Option<Id>, high: Option<Id>) -> Option<Expr> {
        let value = self.scalar(inner)?;
        let at = |place: Id| -> Option<Expr> {
            match self.get(place) {
                Node::Equality(name, to) => match self.scalar(*name)? {
                    Expr::Symbol(name) => Some(eval::substitute(&value, &name, &self.scalar(*to)?)),
                    _ => Some(value.clone()),
                },
                _ => {
                    let to = self.scalar(place)?;
                    match to.symbols().first() {
                        Some(name) => Some(eval::substitute(&value, name, &to)),
                        None => Some(value.clone()),
                    }
                }
            }
        };
        match (low, high) {
            (Some(low), Some(high)) => {
                Some(Expr::plus(at(high)?, Expr::times(at(low)?, Expr::int(-1))))
            }
            (Some(place), None) | (None, Some(place)) => at(place),
            (None, None) => None,
        }
    }
}

fn powered(value: Expr, power: Option<Expr>) -> Expr {
    match power {
        Some(power) if truthy(&power) => Expr::pow(value, power),
        _ => value,
    }
}

/// The variable of `dx` or `d\theta`.
fn differential_name(text: &str) -> &str {
    text[1..].trim_start_matches([' ', '\t', '\r', '\n']).trim_start_matches('\\')
}

/// The name of an accented symbol: `\vec{v}` is `vec{v}`, plain text is itself.
fn accented(text: &str) -> Option<String> {
    let open = text.find('{')?;
    let command = &text[1..open];
    let inner = text[open + 1..text.len() - 1].replace(' ', "");
    let command = match command {
        "bar" | "overline" => "bar",
        "vec" | "overrightarrow" => "vec",
        "tilde" | "widetilde" => "tilde",
        _ if command.contains("text") || command.contains("mbox") => {
            return Some(inner.replace(['(', ')'], ""));
        }
        _ if command.contains("math") => "math",
        _ => command,
    };
    Some(format!("{command}{{{inner}}}"))
}

/// The function of a name and its inverse.
fn trigonometric(name: &str) -> Option<(Fun, Fun)> {
    Some(match name {
        "sin" => (Fun::Sin, Fun::Asin),
        "cos" => (Fun::Cos, Fun::Acos),
        "tan" => (Fun::Tan, Fun::Atan),
        "csc" => (Fun::Csc, Fun::Acsc),
        "sec" => (Fun::Sec, Fun::Asec),
        "cot" => (Fun::Cot, Fun::Acot),
        "sinh" => (Fun::Sinh, Fun::Asinh),
        "cosh" => (Fun::Cosh, Fun::Acosh),
        "tanh" => (Fun::Tanh, Fun::Atanh),
        _ => return None,
    })
}

/// `arcsin`, `arsinh`, `arccosh` and the like.
fn arc_function(name: &str) -> Option<Fun> {
    let plain = name
        .strip_prefix("arc")
        .filter(|rest| trigonometric(rest).is_some())
        .or_else(|| name.strip_prefix("ar"))?;
    trigonometric(plain).map(|pair| pair.1)
}

const GREEK: &str = "αalpha βbeta γgamma ΓGamma δdelta ΔDelta εepsilon ϵvarepsilon ζzeta ηeta θtheta ΘTheta ϑvartheta ιiota \
κkappa λlambda ΛLambda μmu νnu ξxi ΞXi οomicron πpi ΠPi ϖvarpi ρrho ϱvarrho σsigma ΣSigma ςvarsigma τtau υupsilon ΥUpsilon \
φphi ΦPhi ϕvarphi χchi ψpsi ΨPsi ωomega ΩOmega";

/// The English name of a Greek letter.
fn greek(text: &str) -> Option<&'static str> {
    let mut chars = text.chars();
    let letter = chars.next().filter(|c| !c.is_ascii())?;
    if chars.next().is_some() {
        return None;
    }
    GREEK.split(' ').find_map(|entry| entry.strip_prefix(letter))
}

/// A small integer.
pub(super) fn small(value: &Rat) -> Option<i64> {
    if value.is_integer() { value.to_integer().to_i64() } else { None }
}
