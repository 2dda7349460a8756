//! The parser: recursive descent without going back.
//!
//! ```text
//! filter     = [ expression ]
//! expression = factor { "AND" factor } | factor { "OR" factor }
//! factor     = ( "NOT" | "-" ) factor | "(" expression ")" | comparison
//! comparison = path operator value
//! path       = name { "." ( name | quoted ) }
//! operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | ":"
//! value      = word | quoted
//! ```

use super::{
    COMPARISONS_MAX, Comparison, DEPTH_MAX, Expression, Fault, LENGTH_MAX, Operator, PATH_MAX,
    Part, Value,
};

const AND: &str = "AND";
const OR: &str = "OR";
const NOT: &str = "NOT";

/// Longer ones first: they begin with shorter ones.
const OPERATORS: [Operator; 7] = [
    Operator::NotEqual,
    Operator::LessOrEqual,
    Operator::GreaterOrEqual,
    Operator::Equal,
    Operator::Less,
    Operator::Greater,
    Operator::Has,
];

/// Reads a filter; absent where the text is empty.
pub(super) fn parse(text: &str) -> Result<Option<Expression>, Fault> {
    if text.len() > LENGTH_MAX {
        let what = format!(
            "the filter has {} bytes; at most {LENGTH_MAX} are allowed",
            text.len()
        );
        return Err(Fault::new(LENGTH_MAX, what));
    }
    let mut parser = Parser {
        text,
        at: 0,
        comparisons: 0,
    };
    parser.skip_spaces();
    if parser.rest().is_empty() {
        return Ok(None);
    }
    let expression = parser.expression(0)?;
    match parser.rest().chars().next() {
        None => Ok(Some(expression)),
        Some(')') => Err(parser.fault("a parenthesis is closed that is not open")),
        Some(_) => Err(parser.fault("AND, OR or the end of the filter must follow, in capitals")),
    }
}

struct Parser<'t> {
    text: &'t str,
    /// How far it is read, in bytes.
    at: usize,
    /// How many comparisons were read.
    comparisons: usize,
}

/// A text between quotes or without, with the asterisks that are not escaped.
#[derive(Default)]
struct Scanned {
    text: String,
    /// Where asterisks stand: in `text`, and in the filter.
    asterisks: Vec<(usize, usize)>,
}

impl<'t> Parser<'t> {
    fn expression(&mut self, depth: usize) -> Result<Expression, Fault> {
        let first = self.factor(depth)?;
        let word = match self.peek_word() {
            AND => AND,
            OR => OR,
            _ => return Ok(first),
        };
        let mut factors = vec![first];
        loop {
            let next = self.peek_word();
            if next == word {
                self.at += word.len();
                factors.push(self.factor(depth)?);
            } else if next == AND || next == OR {
                let what = "AND and OR stand beside each other: put one of them in parentheses";
                return Err(self.fault(what));
            } else if word == AND {
                return Ok(Expression::All(factors));
            } else {
                return Ok(Expression::Any(factors));
            }
        }
    }

    /// Reads a factor, and the spaces around it.
    fn factor(&mut self, depth: usize) -> Result<Expression, Fault> {
        self.skip_spaces();
        if depth > DEPTH_MAX {
            let what = format!("more than {DEPTH_MAX} parentheses or negations are in each other");
            return Err(self.fault(what));
        }
        let factor = if self.take("-") {
            Expression::Not(Box::new(self.factor(depth + 1)?))
        } else if self.peek_word() == NOT {
            self.at += NOT.len();
            Expression::Not(Box::new(self.factor(depth + 1)?))
        } else if self.take("(") {
            let open = self.at;
            let inner = self.expression(depth + 1)?;
            if !self.take(")") {
                let what = format!(
                    "AND, OR or the parenthesis that closes the one at byte {open} must follow"
                );
                return Err(self.fault(what));
            }
            inner
        } else {
            Expression::Comparison(self.comparison()?)
        };
        self.skip_spaces();
        Ok(factor)
    }

    fn comparison(&mut self) -> Result<Comparison, Fault> {
        self.comparisons += 1;
        if self.comparisons > COMPARISONS_MAX {
            let what = format!("a filter has at most {COMPARISONS_MAX} comparisons");
            return Err(self.fault(what));
        }
        let path = self.path()?;
        self.skip_spaces();
        let operator_at = self.at;
        let operator = self.operator()?;
        self.skip_spaces();
        Ok(Comparison {
            path,
            operator,
            operator_at,
            value: self.value()?,
        })
    }

    fn path(&mut self) -> Result<Vec<Part>, Fault> {
        let mut path = vec![self.name()?];
        while self.take(".") {
            if path.len() == PATH_MAX {
                return Err(self.fault(format!("a path has at most {PATH_MAX} parts")));
            }
            let at = self.at;
            path.push(match self.quoted()? {
                Some(Scanned { text, .. }) => Part { at, text },
                None => self.name()?,
            });
        }
        Ok(path)
    }

    fn name(&mut self) -> Result<Part, Fault> {
        let name = self.peek_word();
        let at = self.at;
        if name.is_empty() || [AND, OR, NOT].contains(&name) {
            return Err(
                self.fault("the name of a field must stand here, as state or spec.flavor.vcpus")
            );
        }
        self.at += name.len();
        let text = name.to_owned();
        Ok(Part { at, text })
    }

    fn operator(&mut self) -> Result<Operator, Fault> {
        let mut all = OPERATORS.into_iter();
        let operator = all.find(|operator| self.take(operator.as_str()));
        operator.ok_or_else(|| self.fault("one of = != < <= > >= : must stand here"))
    }

    fn value(&mut self) -> Result<Value, Fault> {
        let at = self.at;
        let scanned = match self.quoted()? {
            Some(scanned) => scanned,
            None => self.word()?,
        };
        let Scanned { text, asterisks } = scanned;
        let last = text.len().saturating_sub(1);
        let inner = asterisks.iter().find(|(to, _)| *to != 0 && *to != last);
        if let Some((_, asterisk)) = inner {
            let what = "* stands for any text at the ends of a value only; in quotes, \\* is the character";
            return Err(Fault::new(*asterisk, what));
        }
        let is_open_before = asterisks.iter().any(|(to, _)| *to == 0);
        let is_open_behind = last > 0 && asterisks.iter().any(|(to, _)| *to == last);
        let end = text.len() - usize::from(is_open_behind);
        Ok(Value {
            at,
            text: text[usize::from(is_open_before)..end].to_owned(),
            is_open_before,
            is_open_behind,
        })
    }

    /// Reads a value without quotes.
    fn word(&mut self) -> Result<Scanned, Fault> {
        let rest = self.rest();
        let end = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        let text = &rest[..end];
        if text.is_empty() || [AND, OR, NOT].contains(&text) {
            let what = "a value must stand here; spaces, parentheses, commas, operators and the words AND, OR and NOT in it need quotes";
            return Err(self.fault(what));
        }
        let asterisks = text.match_indices('*');
        let asterisks = asterisks.map(|(to, _)| (to, self.at + to)).collect();
        self.at += end;
        let text = text.to_owned();
        Ok(Scanned { text, asterisks })
    }

    /// Reads a text in quotes, if there is one.
    fn quoted(&mut self) -> Result<Option<Scanned>, Fault> {
        let rest = self.rest();
        let mut characters = rest.char_indices();
        let Some((_, quote @ ('"' | '\''))) = characters.next() else {
            return Ok(None);
        };
        let mut scanned = Scanned::default();
        while let Some((at, character)) = characters.next() {
            if character == quote {
                self.at += at + 1;
                return Ok(Some(scanned));
            }
            if character == '*' {
                let to = scanned.text.len();
                scanned.asterisks.push((to, self.at + at));
            }
            scanned.text.push(match character {
                '\\' => match characters.next() {
                    Some((_, escaped @ ('"' | '\'' | '\\' | '*'))) => escaped,
                    _ => {
                        let what = "\\ is followed by one of \" ' \\ *";
                        return Err(Fault::new(self.at + at, what));
                    }
                },
                _ => character,
            });
        }
        Err(self.fault("the quotes that open here are not closed"))
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    /// Returns the name or keyword that follows.
    fn peek_word(&self) -> &'t str {
        let rest = self.rest();
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let end = rest.find(|c| !is_of_name(c)).unwrap_or(rest.len());
        &rest[..end]
    }

    fn take(&mut self, text: &str) -> bool {
        let is_there = self.rest().starts_with(text);
        if is_there {
            self.at += text.len();
        }
        is_there
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn fault(&self, what: impl Into<String>) -> Fault {
        Fault::new(self.at, what)
    }
}

fn is_of_word(character: char) -> bool {
    let is_special = "()\"'\\,=<>!".contains(character);
    !is_special && !character.is_whitespace() && !character.is_control()
}
