//! The shipped rules for alerts, with minutes and days made seconds.
//!
//! What it is not: other rules. Expressions, labels and annotations are those of the file; what changes is
//! listed here: how long a condition holds ([`HOLD`]), how long a range is ([`RANGE`]), how long ago the
//! past is that is compared with ([`PAST`]), and the numbers of [`THRESHOLDS`].
//!
//! Invariant: a rule that cannot be shortened is an error. None is left out.

/// For how long a condition holds until its alert fires.
pub(super) const HOLD: &str = "1s";

/// The length of every range.
pub(super) const RANGE: &str = "4s";

/// How long ago the past is.
pub(super) const PAST: &str = "8s";

/// Numbers that take an hour, or ten thousand requests, to reach: the alert, the comparison of the file,
/// and that of the test.
const THRESHOLDS: [(&str, &str, &str); 2] = [
    ("BerthMemberBehind", "> 10000", "> 10"),
    ("BerthOperationStuck", "> 3600", "> 2"),
];

/// What a rule begins with.
const ALERT: &str = "      - alert: ";
const FOR: &str = "        for: ";

/// Returns the names of all alerts of a file of rules, in its order.
pub(super) fn names(rules: &str) -> Vec<&str> {
    let names = rules.lines().filter_map(|line| line.strip_prefix(ALERT));
    names.map(str::trim).collect()
}

/// Returns the rules for a test that does not wait for minutes.
pub(super) fn shorten(rules: &str) -> Result<String, String> {
    let mut parts = rules.split(ALERT);
    let head = parts.next().unwrap_or_default();
    let shortened: Result<Vec<String>, String> = parts.map(shorten_rule).collect();
    let shortened = shortened?;
    let names = names(rules);
    if shortened.is_empty() || shortened.len() != names.len() {
        return Err(format!("{} of {names:?} are rules", shortened.len()));
    }
    for (alert, ..) in THRESHOLDS {
        if !names.contains(&alert) {
            return Err(format!("{alert} has another threshold and is no alert"));
        }
    }
    let rules = shortened.iter().map(|rule| format!("{ALERT}{rule}"));
    Ok(rules.fold(head.to_owned(), |all, rule| all + &rule))
}

fn shorten_rule(rule: &str) -> Result<String, String> {
    let name = rule.lines().next().unwrap_or_default().trim();
    let wrong = |what: &str| format!("{name}: {what}");
    let mut holds = rule.lines().filter(|line| line.starts_with(FOR));
    let (Some(hold), None) = (holds.next(), holds.next()) else {
        return Err(wrong("a rule has one line that begins with `for:`"));
    };
    let (before, rest) = rule
        .split_once("        expr: |\n")
        .ok_or_else(|| wrong("its expression is not in the lines after `expr: |`"))?;
    let (expression, after) = rest
        .split_once(hold)
        .ok_or_else(|| wrong("`for:` is not after the expression"))?;
    let expression = with_ranges(expression).map_err(|what| wrong(&what))?;
    let mut expression = with_past(&expression).map_err(|what| wrong(&what))?;
    for (_, from, to) in THRESHOLDS.iter().filter(|(alert, ..)| *alert == name) {
        if expression.matches(from).count() != 1 {
            return Err(wrong(&format!("{from:?} is not in it once")));
        }
        expression = expression.replace(from, to);
    }
    Ok(format!(
        "{before}        expr: |\n{expression}{FOR}{HOLD}{after}"
    ))
}

/// Returns an expression with every range as long as [`RANGE`].
fn with_ranges(expression: &str) -> Result<String, String> {
    let mut parts = expression.split('[');
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (range, rest) = part.split_once(']').ok_or("a range does not end")?;
        check_duration(range)?;
        all.push_str(&format!("[{RANGE}]{rest}"));
    }
    Ok(all)
}

/// Returns an expression with every offset as long as [`PAST`].
fn with_past(expression: &str) -> Result<String, String> {
    let mut parts = expression.split("offset ");
    let mut all = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_alphanumeric());
        let (offset, rest) = part.split_at(end.unwrap_or(part.len()));
        check_duration(offset)?;
        all.push_str(&format!("offset {PAST}{rest}"));
    }
    Ok(all)
}

/// Checks that a text is one number with one unit, as `10m`.
fn check_duration(text: &str) -> Result<(), String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let unit = &text[number.len()..];
    let is_one = number.parse::<u32>().is_ok() && matches!(unit, "s" | "m" | "h" | "d");
    is_one
        .then_some(())
        .ok_or_else(|| format!("{text:?} is no duration that can be shortened"))
}

/// Goal: what the transformation does not understand is an error rather than a rule that is left as it
/// is. Method: rules that lack something, each with its error.
pub(super) fn check_errors() {
    let rule = |name: &str, expression: &str, hold: &str| {
        format!(
            "groups:\n{ALERT}{name}\n        expr: |\n          {expression}\n{hold}        labels:\n"
        )
    };
    let hold = "        for: 5m\n";
    let others: String = THRESHOLDS
        .iter()
        .map(|(alert, from, _)| {
            let rule = rule(alert, &format!("a {from}"), hold);
            rule.trim_start_matches("groups:\n").to_owned()
        })
        .collect();
    let check = |name: &str, expression: &str, hold: &str| {
        shorten(&(rule(name, expression, hold) + &others))
    };
    let good = check("A", "rate(x[10m]) > rate(x[10m] offset 1h)", hold);
    let good = good.expect("it can be shortened");
    let expected = format!("rate(x[{RANGE}]) > rate(x[{RANGE}] offset {PAST})\n{FOR}{HOLD}\n");
    assert!(good.contains(&expected), "{good}");
    for (name, expression, hold, error) in [
        ("A", "x > 1", "", "one line that begins with `for:`"),
        ("A", "rate(x[10m) > 1", hold, "a range does not end"),
        ("A", "rate(x[5m:1m]) > 1", hold, "no duration"),
        ("A", "x offset -1h > 1", hold, "no duration"),
        ("BerthMemberBehind", "x > 9", hold, "is not in it once"),
    ] {
        let refused = check(name, expression, hold).expect_err(expression);
        assert!(refused.contains(error), "{refused}");
    }
    assert!(shorten("groups:\n").is_err(), "there are no rules");
    let lacks = shorten(&rule("A", "x > 1", hold)).expect_err("two are missing");
    assert!(lacks.contains("is no alert"), "{lacks}");
}
