//! Linear algebra of answers: sums, products, transposes, determinants, traces, norms.
//!
//! Cells stay unevaluated; sizes are bounded.

use super::ast::Operator;
use super::expr::{Expr, Fun};
use super::number::Rat;

const MOST_CELLS: usize = 400;

/// Applies an operator when at least one side is a matrix.
pub(super) fn matrix_operation(operator: Operator, left: Expr, right: Expr) -> Option<Expr> {
    match (operator, left, right) {
        (
            Operator::Add | Operator::Sub,
            Expr::Matrix { rows, columns, cells },
            Expr::Matrix { rows: more_rows, columns: more_columns, cells: more },
        ) => {
            if (rows, columns) != (more_rows, more_columns) {
                return None;
            }
            let join = |(a, b): (Expr, Expr)| {
                if operator == Operator::Add {
                    Expr::plus(a, b)
                } else {
                    Expr::plus(a, b.negated())
                }
            };
            let cells = cells.into_iter().zip(more).map(join).collect();
            Some(Expr::Matrix { rows, columns, cells })
        }
        (
            Operator::Mul,
            Expr::Matrix { rows, columns, cells },
            Expr::Matrix { rows: inner, columns: width, cells: more },
        ) => {
            if columns != inner || rows * width * inner > MOST_CELLS {
                return None;
            }
            let mut product = Vec::with_capacity(rows * width);
            for row in 0..rows {
                for column in 0..width {
                    let terms = (0..inner)
                        .map(|k| {
                            Expr::times(
                                cells[row * columns + k].clone(),
                                more[k * width + column].clone(),
                            )
                        })
                        .collect();
                    product.push(Expr::Add(terms));
                }
            }
            Some(Expr::Matrix { rows, columns: width, cells: product })
        }
        (Operator::Mul, Expr::Matrix { rows, columns, cells }, scalar)
        | (Operator::Mul, scalar, Expr::Matrix { rows, columns, cells }) => {
            let cells = cells.into_iter().map(|cell| Expr::times(scalar.clone(), cell)).collect();
            Some(Expr::Matrix { rows, columns, cells })
        }
        (Operator::Div, Expr::Matrix { rows, columns, cells }, scalar)
            if !matches!(scalar, Expr::Matrix { .. }) =>
        {
            let cells = cells.into_iter().map(|cell| Expr::over(cell, scalar.clone())).collect();
            Some(Expr::Matrix { rows, columns, cells })
        }
        _ => None,
    }
}

pub(super) fn transposed(rows: usize, columns: usize, cells: &[Expr]) -> Expr {
    let turned = (0..columns).flat_map(|column| (0..rows).map(move |row| row * columns + column));
    Expr::Matrix {
        rows: columns,
        columns: rows,
        cells: turned.map(|at| cells[at].clone()).collect(),
    }
}

pub(super) fn norm(cells: &[Expr]) -> Expr {
    let squares = cells
        .iter()
        .map(|cell| Expr::pow(Expr::Apply(Fun::Abs, vec![cell.clone()]), Expr::int(2)))
        .collect();
    Expr::pow(Expr::Add(squares), Expr::Number(Rat::new(1.into(), 2.into())))
}

pub(super) fn trace(matrix: &Expr) -> Option<Expr> {
    match matrix {
        Expr::Matrix { rows, columns, cells } if rows == columns => {
            Some(Expr::Add((0..*rows).map(|at| cells[at * columns + at].clone()).collect()))
        }
        _ => None,
    }
}

/// The determinant by expansion; five rows at most.
pub(super) fn determinant(matrix: &Expr) -> Option<Expr> {
    match matrix {
        Expr::Matrix { rows, columns, cells } if rows == columns && *rows <= 5 => {
            let columns: Vec<usize> = (0..*columns).collect();
            Some(expand(cells, *rows, 0, &columns))
        }
        _ => None,
    }
}

fn expand(cells: &[Expr], size: usize, row: usize, columns: &[usize]) -> Expr {
    if columns.is_empty() {
        return Expr::int(1);
    }
    let mut terms = Vec::new();
    for (at, column) in columns.iter().enumerate() {
        let rest: Vec<usize> = columns.iter().copied().filter(|other| other != column).collect();
        let minor = expand(cells, size, row + 1, &rest);
        let term = Expr::Mul(vec![cells[row * size + column].clone(), minor]);
        terms.push(if at % 2 == 0 { term } else { Expr::Mul(vec![Expr::int(-1), term]) });
    }
    Expr::Add(terms)
}
