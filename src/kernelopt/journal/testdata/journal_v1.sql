-- journal.sqlite as version 1 wrote it. Never changed: later versions must keep reading it.
CREATE TABLE sessions(id INTEGER PRIMARY KEY, at REAL NOT NULL, kind TEXT NOT NULL CHECK(kind IN ('start', 'resume')),
  version TEXT NOT NULL, model TEXT NOT NULL, model_digest TEXT NOT NULL, fingerprint TEXT NOT NULL, options TEXT NOT NULL);
CREATE TABLE baselines(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  mode TEXT NOT NULL, samples TEXT NOT NULL, compile_seconds REAL, first_call_seconds REAL, peak_bytes INTEGER, error TEXT);
CREATE TABLE programs(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  mode TEXT NOT NULL, graph INTEGER NOT NULL, digest TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE groups(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  graph INTEGER NOT NULL, digest TEXT NOT NULL, steps TEXT NOT NULL, kept TEXT, facts TEXT NOT NULL);
CREATE TABLE attempts(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  group_digest TEXT NOT NULL, round INTEGER NOT NULL, chain INTEGER NOT NULL, transform TEXT NOT NULL,
  description TEXT NOT NULL, plan_key TEXT NOT NULL, shape_key TEXT NOT NULL, plan TEXT NOT NULL, parent TEXT);
CREATE TABLE candidates(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  attempt INTEGER REFERENCES attempts, digest TEXT NOT NULL, group_digest TEXT NOT NULL, document TEXT NOT NULL);
CREATE TABLE verdicts(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  candidate TEXT NOT NULL, group_digest TEXT NOT NULL, set_digest TEXT, fingerprint TEXT NOT NULL,
  gate INTEGER NOT NULL CHECK(gate BETWEEN 1 AND 4), verdict TEXT NOT NULL CHECK(verdict IN ('pass', 'rejected', 'error')),
  reason TEXT, evidence TEXT NOT NULL);
CREATE TABLE timings(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  kind TEXT NOT NULL CHECK(kind IN ('group', 'model', 'aa')), subject TEXT NOT NULL, fingerprint TEXT NOT NULL,
  baseline TEXT NOT NULL, candidate TEXT NOT NULL, warmup_seconds REAL NOT NULL, repetition_seconds REAL NOT NULL);
CREATE TABLE outcomes(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  kind TEXT NOT NULL CHECK(kind IN ('optimized', 'matched', 'fallback', 'eager')), ships TEXT NOT NULL, reason TEXT NOT NULL,
  set_digest TEXT, fingerprint TEXT, ratio REAL, low REAL, high REAL, data TEXT NOT NULL,
  CHECK((kind = 'optimized') = (set_digest IS NOT NULL)));
CREATE TABLE wins(id INTEGER PRIMARY KEY, outcome INTEGER NOT NULL REFERENCES outcomes, group_digest TEXT NOT NULL,
  candidate TEXT NOT NULL, document TEXT NOT NULL, evidence TEXT NOT NULL);
CREATE TABLE stages(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  name TEXT NOT NULL, seconds REAL NOT NULL);
CREATE TABLE notes(id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions, at REAL NOT NULL,
  kind TEXT NOT NULL, data TEXT NOT NULL);
CREATE INDEX attempts_by_group ON attempts(group_digest);
CREATE INDEX candidates_by_digest ON candidates(digest);
CREATE INDEX verdicts_by_candidate ON verdicts(candidate, gate);
CREATE INDEX timings_by_subject ON timings(subject);
CREATE INDEX notes_by_kind ON notes(kind);
CREATE TRIGGER sessions_no_UPDATE BEFORE UPDATE ON sessions BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER sessions_no_DELETE BEFORE DELETE ON sessions BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER baselines_no_UPDATE BEFORE UPDATE ON baselines BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER baselines_no_DELETE BEFORE DELETE ON baselines BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER programs_no_UPDATE BEFORE UPDATE ON programs BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER programs_no_DELETE BEFORE DELETE ON programs BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER groups_no_UPDATE BEFORE UPDATE ON groups BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER groups_no_DELETE BEFORE DELETE ON groups BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER attempts_no_UPDATE BEFORE UPDATE ON attempts BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER attempts_no_DELETE BEFORE DELETE ON attempts BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER candidates_no_UPDATE BEFORE UPDATE ON candidates BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER candidates_no_DELETE BEFORE DELETE ON candidates BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER verdicts_no_UPDATE BEFORE UPDATE ON verdicts BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER verdicts_no_DELETE BEFORE DELETE ON verdicts BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER timings_no_UPDATE BEFORE UPDATE ON timings BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER timings_no_DELETE BEFORE DELETE ON timings BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER outcomes_no_UPDATE BEFORE UPDATE ON outcomes BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER outcomes_no_DELETE BEFORE DELETE ON outcomes BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER wins_no_UPDATE BEFORE UPDATE ON wins BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER wins_no_DELETE BEFORE DELETE ON wins BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER stages_no_UPDATE BEFORE UPDATE ON stages BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER stages_no_DELETE BEFORE DELETE ON stages BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER notes_no_UPDATE BEFORE UPDATE ON notes BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
CREATE TRIGGER notes_no_DELETE BEFORE DELETE ON notes BEGIN SELECT RAISE(ABORT, 'the journal is append-only'); END;
PRAGMA application_id = 1802465396;
PRAGMA user_version = 1;
INSERT INTO sessions VALUES(1, 100.0, 'start', '0.1.0', 'model.py', 'abc', 'fake device', '{"rounds":5}');
INSERT INTO baselines VALUES(1, 1, 101.0, 'default', '[0.001,0.002]', 3.5, NULL, 1048576, NULL);
INSERT INTO programs VALUES(1, 1, 102.0, 'default', 0, 'd0', '{"format":"kernelopt.program"}');
INSERT INTO groups VALUES(1, 1, 103.0, 0, 'g0', '["op0"]', NULL, '{}');
INSERT INTO attempts VALUES(1, 1, 104.0, 'g0', 1, 0, 'tile', 'tiles of 8', 'plan a', 'shape', '{}', NULL);
INSERT INTO candidates VALUES(1, 1, 105.0, 1, 'c0', 'g0', '{"format":"kernelopt.candidate"}');
INSERT INTO verdicts VALUES(1, 1, 106.0, 'c0', 'g0', NULL, 'fake device', 1, 'pass', NULL, '{}');
INSERT INTO verdicts VALUES(2, 1, 107.0, 'c0', 'g0', NULL, 'fake device', 2, 'pass', NULL, '{"rho":1.5}');
INSERT INTO timings VALUES(1, 1, 108.0, 'group', 'c0', 'fake device', '[0.001,0.001]', '[0.0008,0.0008]', 0.025, 0.1);
INSERT INTO outcomes VALUES(1, 1, 109.0, 'optimized', 'optimized', 'passed', 's0', 'fake device', 0.8, 0.79, 0.81, '{}');
INSERT INTO wins VALUES(1, 1, 'g0', 'c0', '{"format":"kernelopt.candidate"}', '{"1":{},"2":{},"3":{},"4":{}}');
INSERT INTO stages VALUES(1, 1, 110.0, 'search', 12.5);
INSERT INTO notes VALUES(1, 1, 111.0, 'stop', '{"why":"floor"}');
