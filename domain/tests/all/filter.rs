//! The language of filters: what is read, what is refused and where.
//!
//! Goal: every text is either read as it is meant or refused with the position of the fault; nothing panics
//! and nothing passes a bound. Method: tables; random expressions, which are printed and read again; and
//! random sequences of tokens.

use std::fmt::Write as _;

use berth_domain::filter::{
    COMPARISONS_MAX, Comparison, DEPTH_MAX, Expression, LENGTH_MAX, Operator, PATH_MAX, Part, Value,
};
use proptest::prelude::*;

const OPERATORS: [Operator; 7] = [
    Operator::Equal,
    Operator::NotEqual,
    Operator::Less,
    Operator::LessOrEqual,
    Operator::Greater,
    Operator::GreaterOrEqual,
    Operator::Has,
];

/// Prints an expression with all its parentheses and quotes.
fn print(expression: &Expression) -> String {
    let each = |all: &[Expression], word: &str| {
        let all: Vec<String> = all.iter().map(|one| format!("({})", print(one))).collect();
        all.join(word)
    };
    match expression {
        Expression::All(all) => each(all, " AND "),
        Expression::Any(any) => each(any, " OR "),
        Expression::Not(inner) => format!("NOT ({})", print(inner)),
        Expression::Comparison(comparison) => {
            let (first, rest) = comparison.path.split_first().unwrap();
            let mut text = first.text.clone();
            for part in rest {
                let _ = write!(text, ".{}", quote(&part.text));
            }
            let Value {
                text: value,
                is_open_before,
                is_open_behind,
                ..
            } = &comparison.value;
            let inner = quote(value);
            let inner = &inner[1..inner.len() - 1];
            let asterisk = |is_there: &bool| if *is_there { "*" } else { "" };
            let (before, behind) = (asterisk(is_open_before), asterisk(is_open_behind));
            let operator = comparison.operator.as_str();
            format!("{text} {operator} \"{before}{inner}{behind}\"")
        }
    }
}

fn quote(text: &str) -> String {
    let escaped = text.chars().fold(String::new(), |mut text, character| {
        if "\"\\*".contains(character) {
            text.push('\\');
        }
        text.push(character);
        text
    });
    format!("\"{escaped}\"")
}

/// Returns an expression without its positions.
fn without_positions(expression: Expression) -> Expression {
    let each = |all: Vec<Expression>| all.into_iter().map(without_positions).collect();
    match expression {
        Expression::All(all) => Expression::All(each(all)),
        Expression::Any(any) => Expression::Any(each(any)),
        Expression::Not(inner) => Expression::Not(Box::new(without_positions(*inner))),
        Expression::Comparison(comparison) => {
            let path = comparison.path.into_iter();
            Expression::Comparison(Comparison {
                path: path.map(|part| Part { at: 0, ..part }).collect(),
                operator_at: 0,
                value: Value {
                    at: 0,
                    ..comparison.value
                },
                ..comparison
            })
        }
    }
}

fn count(expression: &Expression) -> usize {
    match expression {
        Expression::All(all) | Expression::Any(all) => all.iter().map(count).sum(),
        Expression::Not(inner) => count(inner),
        Expression::Comparison(_) => 1,
    }
}

fn parse(text: &str) -> Expression {
    let parsed = Expression::parse(text);
    let parsed = parsed.unwrap_or_else(|fault| panic!("{text}: {fault}"));
    without_positions(parsed.unwrap_or_else(|| panic!("{text} is empty")))
}

#[test]
fn filters_are_read() {
    for (text, printed) in [
        ("state = ACTIVE", r#"state = "ACTIVE""#),
        ("state=ACTIVE", r#"state = "ACTIVE""#),
        ("  state  !=\t'ACTIVE'\n", r#"state != "ACTIVE""#),
        ("n<=-5", r#"n <= "-5""#),
        ("n >= 5", r#"n >= "5""#),
        ("n<5", r#"n < "5""#),
        ("n>5", r#"n > "5""#),
        ("labels:env", r#"labels : "env""#),
        ("labels.\"a.b/c\" = prod", r#"labels."a.b/c" = "prod""#),
        ("labels.a-b:*", r#"labels."a-b" : "*""#),
        ("name = web*", r#"name = "web*""#),
        ("name = '*web*'", r#"name = "*web*""#),
        (r#"name = "\*web\*""#, r#"name = "\*web\*""#),
        (r#"name = "\**""#, r#"name = "\**""#),
        (r#"name = 'it\'s'"#, r#"name = "it's""#),
        (r#"name = """#, r#"name = """#),
        (
            "t > 2026-11-01T00:00:00+01:00",
            r#"t > "2026-11-01T00:00:00+01:00""#,
        ),
        ("host = hosts/h1", r#"host = "hosts/h1""#),
        ("description = Zürich", r#"description = "Zürich""#),
        ("((a = 1))", r#"a = "1""#),
        ("-a = 1", r#"NOT (a = "1")"#),
        ("-(a = 1)", r#"NOT (a = "1")"#),
        ("NOT(a = 1)", r#"NOT (a = "1")"#),
        ("NOT NOT a = 1", r#"NOT (NOT (a = "1"))"#),
        ("NOTa = 1", r#"NOTa = "1""#),
        ("a = 1 AND NOT b = 2", r#"(a = "1") AND (NOT (b = "2"))"#),
        ("NOT a = 1 AND b = 2", r#"(NOT (a = "1")) AND (b = "2")"#),
        (
            "a = 1 OR b = 2 OR c = 3",
            r#"(a = "1") OR (b = "2") OR (c = "3")"#,
        ),
        (
            "a = 1 AND (b = 2 OR c = 3)",
            r#"(a = "1") AND ((b = "2") OR (c = "3"))"#,
        ),
        ("(a=1)AND(b=2)", r#"(a = "1") AND (b = "2")"#),
        ("a = 'AND' AND b = \"OR\"", r#"(a = "AND") AND (b = "OR")"#),
    ] {
        let expression = parse(text);
        assert_eq!(print(&expression), printed, "{text}");
        assert_eq!(parse(&print(&expression)), expression, "{text}");
    }
    for empty in ["", "  ", "\n\t"] {
        assert_eq!(Expression::parse(empty), Ok(None));
    }
}

#[test]
fn faults_state_where_and_what() {
    for (text, at, part) in [
        ("state", 5, "one of = != < <= > >= :"),
        ("state ==", 7, "a value must stand here"),
        ("state = ", 8, "a value must stand here"),
        ("state = AND", 8, "a value must stand here"),
        ("state ~ x", 6, "one of ="),
        ("= x", 0, "the name of a field"),
        ("AND", 0, "the name of a field"),
        ("a = 1 AND", 9, "the name of a field"),
        ("a = 1 and b = 2", 6, "in capitals"),
        ("a = 1 b = 2", 6, "AND, OR or the end"),
        ("a = 1, b = 2", 5, "AND, OR or the end"),
        ("a = 1 AND b = 2 OR c = 3", 16, "in parentheses"),
        ("a = 1 OR b = 2 AND c = 3", 15, "in parentheses"),
        ("(a = 1", 6, "the parenthesis that closes the one at byte 1"),
        ("a = 1)", 5, "closed that is not open"),
        ("()", 1, "the name of a field"),
        ("a. = 1", 2, "the name of a field"),
        (".a = 1", 0, "the name of a field"),
        ("\"a\" = 1", 0, "the name of a field"),
        ("a = \"b", 4, "quotes that open here are not closed"),
        ("a = 'b\"", 4, "quotes that open here are not closed"),
        ("a = \"b\\n\"", 6, "is followed by one of"),
        ("a = \"b\\", 6, "is followed by one of"),
        ("a = b*c", 5, "at the ends of a value only"),
        ("a = \"**b\"", 6, "at the ends of a value only"),
        ("ä = 1", 0, "the name of a field"),
        ("a = ü(", 6, "AND, OR or the end"),
        ("a = b\\c", 5, "AND, OR or the end"),
        ("a.b.\u{1f600} = 1", 4, "the name of a field"),
    ] {
        let fault = Expression::parse(text).expect_err(text);
        assert_eq!(fault.at, at, "{text}: {fault}");
        assert!(fault.what.contains(part), "{text}: {fault}");
        let shown = format!("at byte {}: ", at + 1);
        assert!(fault.to_string().starts_with(&shown), "{fault}");
    }
}

/// Goal: what is hostile is refused by a bound, and the last that is within each is read.
#[test]
fn bounds_hold() {
    let nested = |depth: usize, open: &str, close: &str| {
        format!("{}a = 1{}", open.repeat(depth), close.repeat(depth))
    };
    for (open, close) in [("(", ")"), ("-", ""), ("NOT ", ""), ("-(", ")")] {
        let depth = if open == "-(" {
            DEPTH_MAX / 2
        } else {
            DEPTH_MAX
        };
        Expression::parse(&nested(depth, open, close)).expect("within the bound");
        let fault = Expression::parse(&nested(depth + 1, open, close)).unwrap_err();
        assert!(fault.what.contains("parentheses or negations"), "{fault}");
        let most = LENGTH_MAX / open.len();
        Expression::parse(&open.repeat(most)).unwrap_err();
    }
    let many = |count: usize| vec!["a=1"; count].join(" OR ");
    Expression::parse(&many(COMPARISONS_MAX)).expect("within the bound");
    let fault = Expression::parse(&many(COMPARISONS_MAX + 1)).unwrap_err();
    assert!(fault.what.contains("at most 64 comparisons"), "{fault}");
    let path = |parts: usize| format!("{} = 1", vec!["a"; parts].join("."));
    Expression::parse(&path(PATH_MAX)).expect("within the bound");
    let fault = Expression::parse(&path(PATH_MAX + 1)).unwrap_err();
    assert!(fault.what.contains("at most 16 parts"), "{fault}");
    let long = |length: usize| format!("a = \"{}\"", "x".repeat(length - 6));
    Expression::parse(&long(LENGTH_MAX)).expect("within the bound");
    let fault = Expression::parse(&long(LENGTH_MAX + 1)).unwrap_err();
    assert!(fault.what.contains("at most 2048"), "{fault}");
}

#[test]
fn asterisks_stand_for_any_text() {
    for (value, text, is_met) in [
        ("web*", "web", true),
        ("web*", "web1", true),
        ("web*", "aweb", false),
        ("*web", "aweb", true),
        ("*web", "web1", false),
        ("*web*", "aweb1", true),
        ("*web*", "wed", false),
        ("web", "web1", false),
        (r#""\*""#, "*", true),
        (r#""\*""#, "x", false),
        (r#""""#, "", true),
        ("*", "x", true),
    ] {
        let Expression::Comparison(comparison) = parse(&format!("a = {value}")) else {
            panic!("{value} is one comparison");
        };
        assert_eq!(comparison.value.matches(text), is_met, "{value} {text}");
    }
}

fn name() -> impl Strategy<Value = String> {
    "[a-z_][a-z0-9_-]{0,6}"
}

fn comparison() -> impl Strategy<Value = Expression> {
    let part = prop_oneof![name(), "[a-z./\"'\\\\ *ü]{0,6}"];
    let path = (name(), prop::collection::vec(part, 0..4));
    let value = ("[a-z*\"'\\\\ ü().]{0,8}", any::<bool>(), any::<bool>());
    (path, prop::sample::select(&OPERATORS[..]), value).prop_map(
        |((first, rest), operator, (text, before, behind))| {
            let path = std::iter::once(first).chain(rest);
            // One asterisk alone is at both ends; it is read as the first.
            let is_open_behind = behind && (before || !text.is_empty());
            Expression::Comparison(Comparison {
                path: path.map(|text| Part { at: 0, text }).collect(),
                operator,
                operator_at: 0,
                value: Value {
                    at: 0,
                    text,
                    is_open_before: before,
                    is_open_behind,
                },
            })
        },
    )
}

fn expression() -> impl Strategy<Value = Expression> {
    comparison().prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expression::All),
            prop::collection::vec(inner.clone(), 2..4).prop_map(Expression::Any),
            inner.prop_map(|inner| Expression::Not(Box::new(inner))),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_printed_is_read_again(expression in expression()) {
        let text = print(&expression);
        prop_assume!(text.len() <= LENGTH_MAX && count(&expression) <= COMPARISONS_MAX);
        prop_assert_eq!(parse(&text), expression);
    }

    /// Goal: no text panics, and each fault lies in the text, between two characters.
    #[test]
    fn no_text_panics(tokens in prop::collection::vec(
        prop_oneof![
            Just("(".to_owned()), Just(")".to_owned()), Just(" AND ".to_owned()),
            Just(" OR ".to_owned()), Just("NOT ".to_owned()), Just("-".to_owned()),
            Just("=".to_owned()), Just("!=".to_owned()), Just(":".to_owned()),
            Just("\"".to_owned()), Just("'".to_owned()), Just("\\".to_owned()),
            Just("*".to_owned()), Just(".".to_owned()), Just("a".to_owned()),
            any::<char>().prop_map(String::from), ".{0,4}",
        ],
        0..40,
    )) {
        let text = tokens.concat();
        if let Err(fault) = Expression::parse(&text) {
            prop_assert!(text.is_char_boundary(fault.at), "{}", fault);
        }
    }
}
