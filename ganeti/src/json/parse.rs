//! Reads JSON byte by byte as it is requested, and refuses at the first fault, so that a
//! gigabyte of something else ends after its first bytes.

use std::collections::BTreeSet;

use super::{Error, Fault, Kind, Value, shortened};

/// The longest string, number or space between values, in bytes.
const LONGEST: usize = 1 << 20;

/// How much is read before a text is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The longest text in bytes.
    pub text_bytes: usize,
    /// How deep values may be nested.
    pub depth: usize,
    /// Keys that may come twice in the outermost object: the first one counts. Requests of
    /// Ganeti's own tests have such a key, and hail takes them.
    pub repeatable: &'static [&'static str],
}

impl Default for Limits {
    /// A quarter of a gigabyte, 64 levels, and the key that Ganeti's requests repeat.
    fn default() -> Self {
        Limits {
            text_bytes: 256 << 20,
            depth: 64,
            repeatable: &["enabled_hypervisors"],
        }
    }
}

/// Reads a whole text; no byte after a fault is read.
///
/// # Errors
///
/// The first fault, with its line and column.
pub fn parse(bytes: impl Iterator<Item = u8>, limits: Limits) -> Result<Value, Error> {
    let mut parser = Parser {
        bytes,
        next: None,
        read: 0,
        line: 1,
        column: 0,
        limits,
    };
    parser.advance()?;
    parser.space()?;
    let value = parser.value(0)?;
    parser.space()?;
    match parser.next {
        None => Ok(value),
        Some(_) => Err(parser.unexpected("the end")),
    }
}

struct Parser<I> {
    bytes: I,
    /// The byte that is looked at; nothing at the end.
    next: Option<u8>,
    read: usize,
    line: usize,
    column: usize,
    limits: Limits,
}

impl<I: Iterator<Item = u8>> Parser<I> {
    fn error(&self, fault: Fault) -> Error {
        Error {
            line: self.line,
            column: self.column.max(1),
            fault,
        }
    }

    fn unexpected(&self, expected: &'static str) -> Error {
        let actual = match self.next {
            None => "the end".to_owned(),
            Some(byte) if byte.is_ascii_graphic() => format!("'{}'", char::from(byte)),
            Some(byte) => format!("the byte {byte:#04x}"),
        };
        self.error(Fault::Syntax { expected, actual })
    }

    /// Goes to the next byte.
    fn advance(&mut self) -> Result<(), Error> {
        if self.next == Some(b'\n') {
            self.line += 1;
            self.column = 0;
        }
        self.next = self.bytes.next();
        self.read += usize::from(self.next.is_some());
        // Later bytes of a character are not columns of their own.
        let begins = self.next.is_none_or(|byte| byte & 0xc0 != 0x80);
        self.column += usize::from(begins);
        if self.read > self.limits.text_bytes {
            let limit = self.limits.text_bytes;
            return Err(self.error(Fault::TooLong { limit }));
        }
        Ok(())
    }

    fn space(&mut self) -> Result<(), Error> {
        let mut left = LONGEST;
        while matches!(self.next, Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.spend(&mut left)?;
        }
        Ok(())
    }

    /// Goes to the next byte of something that may be so long and no longer.
    fn spend(&mut self, left: &mut usize) -> Result<(), Error> {
        if *left == 0 {
            return Err(self.error(Fault::Endless { limit: LONGEST }));
        }
        *left -= 1;
        self.advance()
    }

    fn value(&mut self, depth: usize) -> Result<Value, Error> {
        if depth > self.limits.depth {
            let limit = self.limits.depth;
            return Err(self.error(Fault::TooDeep { limit }));
        }
        let (line, column) = (self.line, self.column);
        let kind = match self.next {
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Kind::Text(self.text()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Kind::Flag(true))?,
            Some(b'f') => self.word("false", Kind::Flag(false))?,
            Some(b'n') => self.word("null", Kind::Null)?,
            Some(_) | None => return Err(self.unexpected("a value")),
        };
        Ok(Value { line, column, kind })
    }

    fn word(&mut self, word: &'static str, kind: Kind) -> Result<Kind, Error> {
        for byte in word.bytes() {
            if self.next != Some(byte) {
                return Err(self.unexpected(word));
            }
            self.advance()?;
        }
        Ok(kind)
    }

    fn object(&mut self, depth: usize) -> Result<Kind, Error> {
        self.advance()?;
        self.space()?;
        let mut members = Vec::new();
        let mut known = BTreeSet::new();
        if self.next == Some(b'}') {
            self.advance()?;
            return Ok(Kind::Object(members));
        }
        loop {
            let (line, column) = (self.line, self.column);
            if self.next != Some(b'"') {
                return Err(self.unexpected("a key in quotation marks"));
            }
            let key = self.text()?;
            let repeated = !known.insert(key.clone());
            let passed = depth == 0 && self.limits.repeatable.contains(&&key[..]);
            if repeated && !passed {
                let key = shortened(&key);
                let fault = Fault::Duplicate { key };
                return Err(Error {
                    line,
                    column,
                    fault,
                });
            }
            self.space()?;
            if self.next != Some(b':') {
                return Err(self.unexpected("':'"));
            }
            self.advance()?;
            self.space()?;
            let value = self.value(depth + 1)?;
            members.push((key, value));
            self.space()?;
            match self.next {
                Some(b',') => self.advance()?,
                Some(b'}') => break,
                Some(_) | None => return Err(self.unexpected("',' or '}'")),
            }
            self.space()?;
        }
        self.advance()?;
        Ok(Kind::Object(members))
    }

    fn list(&mut self, depth: usize) -> Result<Kind, Error> {
        self.advance()?;
        self.space()?;
        let mut items = Vec::new();
        if self.next == Some(b']') {
            self.advance()?;
            return Ok(Kind::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space()?;
            match self.next {
                Some(b',') => self.advance()?,
                Some(b']') => break,
                Some(_) | None => return Err(self.unexpected("',' or ']'")),
            }
            self.space()?;
        }
        self.advance()?;
        Ok(Kind::List(items))
    }

    fn text(&mut self) -> Result<String, Error> {
        self.advance()?;
        let (mut bytes, mut left) = (Vec::new(), LONGEST);
        loop {
            match self.next {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.spend(&mut left)?;
                    self.escaped(&mut bytes)?;
                }
                Some(byte) if byte >= 0x20 => {
                    bytes.push(byte);
                    self.spend(&mut left)?;
                }
                Some(_) | None => return Err(self.unexpected("the end of the string")),
            }
        }
        let text = String::from_utf8(bytes).map_err(|_| {
            self.error(Fault::Syntax {
                expected: "UTF-8",
                actual: "a string with other bytes before".to_owned(),
            })
        })?;
        self.advance()?;
        Ok(text)
    }

    fn escaped(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let plain = match self.next {
            Some(byte @ (b'"' | b'\\' | b'/')) => byte,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => return self.escaped_code(bytes),
            Some(_) | None => return Err(self.unexpected("an escape")),
        };
        bytes.push(plain);
        self.advance()
    }

    fn escaped_code(&mut self, bytes: &mut Vec<u8>) -> Result<(), Error> {
        self.advance()?;
        let mut code = self.code()?;
        if (0xd800..0xdc00).contains(&code) {
            for byte in *b"\\u" {
                if self.next != Some(byte) {
                    return Err(self.unexpected("the second half of a character"));
                }
                self.advance()?;
            }
            let low = self.code()?;
            if !(0xdc00..0xe000).contains(&low) {
                return Err(self.unexpected("the second half of a character"));
            }
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        }
        let Some(character) = char::from_u32(code) else {
            return Err(self.unexpected("a character, not half of one"));
        };
        bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn code(&mut self) -> Result<u32, Error> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.next.and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected("four hexadecimal digits"));
            };
            code = code * 16 + digit;
            self.advance()?;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Kind, Error> {
        let mut text = String::new();
        if self.next == Some(b'-') {
            self.take(&mut text)?;
        }
        if self.next == Some(b'0') {
            self.take(&mut text)?;
        } else {
            self.digits(&mut text)?;
        }
        if self.next == Some(b'.') {
            self.take(&mut text)?;
            self.digits(&mut text)?;
        }
        if matches!(self.next, Some(b'e' | b'E')) {
            self.take(&mut text)?;
            if matches!(self.next, Some(b'+' | b'-')) {
                self.take(&mut text)?;
            }
            self.digits(&mut text)?;
        }
        Ok(Kind::Number(text))
    }

    fn take(&mut self, text: &mut String) -> Result<(), Error> {
        text.extend(self.next.map(char::from));
        self.advance()
    }

    fn digits(&mut self, text: &mut String) -> Result<(), Error> {
        if !matches!(self.next, Some(b'0'..=b'9')) {
            return Err(self.unexpected("a digit"));
        }
        while matches!(self.next, Some(b'0'..=b'9')) {
            if text.len() >= LONGEST {
                return Err(self.error(Fault::Endless { limit: LONGEST }));
            }
            self.take(text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let outcome = match parse(text.bytes(), Limits::default()) {
            Ok(value) => format!("{:?}", value.kind),
            Err(error) => error.to_string(),
        };
        assert_eq!(outcome, expected, "{text}");
    }

    /// Goal: what is JSON is read, and what is not is refused by its place.
    #[test]
    fn values_and_faults_by_their_place() {
        check(r#" "a\n\u00e9\ud83d\ude00" "#, "Text(\"a\\né😀\")");
        check("-1.5e3", "Number(\"-1.5e3\")");
        check(
            "[true,null]x",
            "line 1, column 12: not JSON: the end was expected, and here is 'x'",
        );
        check(
            "",
            "line 1, column 1: not JSON: a value was expected, and here is the end",
        );
        check(
            "{\n \"a\": 01}",
            "line 2, column 8: not JSON: ',' or '}' was expected, and here is '1'",
        );
        check(
            "{\"ä\":1,\"ä\":2}",
            "line 1, column 8: the key 'ä' is already in this object",
        );
        check(
            "\0",
            "line 1, column 1: not JSON: a value was expected, and here is the byte 0x00",
        );
        check(
            "\"a",
            "line 1, column 3: not JSON: the end of the string was expected, and here is the end",
        );
        check(
            "[1,]",
            "line 1, column 4: not JSON: a value was expected, and here is ']'",
        );
        check(
            &"[".repeat(100),
            "line 1, column 66: values are nested more than 64 deep",
        );
    }

    /// Goal: a gigabyte of something else is not read.
    #[test]
    fn nothing_is_read_after_a_fault() {
        let mut read = 0;
        let garbage = std::iter::repeat_n(0, 1 << 30).inspect(|_| read += 1);
        assert!(parse(garbage, Limits::default()).is_err());
        assert_eq!(read, 1);
        let mut read = 0;
        let limits = Limits {
            text_bytes: 1000,
            ..Limits::default()
        };
        let spaces = std::iter::repeat_n(b' ', 1 << 30).inspect(|_| read += 1);
        let error = parse(spaces, limits).unwrap_err();
        assert_eq!(error.fault, Fault::TooLong { limit: 1000 });
        assert_eq!(read, 1001);
        for (first, then) in [(b' ', b' '), (b'"', b'a'), (b'1', b'1')] {
            let mut read = 0;
            let bytes = std::iter::once(first).chain(std::iter::repeat_n(then, 1 << 30));
            let error = parse(bytes.inspect(|_| read += 1), Limits::default()).unwrap_err();
            assert_eq!(error.fault, Fault::Endless { limit: LONGEST });
            assert!(read < LONGEST + 10);
        }
    }
}
