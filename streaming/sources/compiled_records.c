/* Lines of JSON that have one flat shape to columns (flat_records.py), rows of CSV to columns
 * (plain_rows.py), names to codes (name_hashes.py).
 *
 * Nothing here guesses: what is not exactly as expected is given back, for parsers that know all of
 * JSON and CSV. No byte outside of a given buffer is read, and nothing is kept but the names of a table.
 * Built by hatch_build.py, for every Python from 3.11 on.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* -- lines to columns ------------------------------------------------------------------------- */

enum kind { SKIP, TEXT, NUMBER, FIXED, TIME };

enum { MAX_FIELDS = 64, LONGEST_NUMBER = 63 };

typedef struct {
    enum kind kind;
    const char *name; /* with its quotes */
    Py_ssize_t name_length;
    const char *fixed; /* what the value must be, where it may be one thing only */
    Py_ssize_t fixed_length;
    double *numbers;
    int64_t *times; /* microseconds since the epoch */
    int32_t *ends;
    char *texts;
} field;

typedef struct {
    const char *next;
    const char *end;
} cursor;

static void skip_space(cursor *at) {
    while (at->next < at->end && (*at->next == ' ' || *at->next == '\t' || *at->next == '\r'))
        at->next++;
}

/* Take one character, with space before and after it. */
static int take(cursor *at, char wanted) {
    skip_space(at);
    if (at->next >= at->end || *at->next != wanted)
        return 0;
    at->next++;
    skip_space(at);
    return 1;
}

static int take_all(cursor *at, const char *wanted, Py_ssize_t length) {
    if (at->end - at->next < length || memcmp(at->next, wanted, (size_t)length) != 0)
        return 0;
    at->next += length;
    return 1;
}

/* A text without escapes or control characters; whether all is UTF-8 was seen before. */
static int take_text(cursor *at, const char **begin, Py_ssize_t *length) {
    if (at->next >= at->end || *at->next != '"')
        return 0;

    *begin = ++at->next;
    while (at->next < at->end && *at->next != '"') {
        if ((unsigned char)*at->next < 0x20 || *at->next == '\\')
            return 0;
        at->next++;
    }

    if (at->next >= at->end)
        return 0;
    *length = at->next++ - *begin;
    return 1;
}

static int is_digit(const cursor *at) {
    return at->next < at->end && *at->next >= '0' && *at->next <= '9';
}

/* A number of JSON, to the nearest float; none that is beyond all floats, and no minus zero. */
static int take_number(cursor *at, double *number) {
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *begin = at->next;
    uint64_t digits = 0;
    int count = 0;
    int after_point = 0;
    int plain = 1;
    int negative = at->next < at->end && *at->next == '-';

    at->next += negative;
    if (!is_digit(at))
        return 0;

    const char *first = at->next;
    for (; is_digit(at); at->next++, count++)
        digits = count < 15 ? digits * 10 + (uint64_t)(*at->next - '0') : digits;
    if (*first == '0' && count > 1)
        return 0;

    if (at->next < at->end && *at->next == '.') {
        at->next++;
        if (!is_digit(at))
            return 0;
        for (; is_digit(at); at->next++, count++, after_point++)
            digits = count < 15 ? digits * 10 + (uint64_t)(*at->next - '0') : digits;
    }

    if (at->next < at->end && (*at->next == 'e' || *at->next == 'E')) {
        plain = 0;
        at->next++;
        if (at->next < at->end && (*at->next == '+' || *at->next == '-'))
            at->next++;
        if (!is_digit(at))
            return 0;
        while (is_digit(at))
            at->next++;
    }

    /* Both are below 2^53 and exact, so that their quotient is the nearest float. */
    if (plain && count <= 15 && FLT_EVAL_METHOD == 0) {
        double value = (double)digits / powers[after_point];
        *number = negative ? -value : value;
        return !(negative && digits == 0);
    }

    char copy[LONGEST_NUMBER + 1];
    Py_ssize_t length = at->next - begin;
    if (length > LONGEST_NUMBER)
        return 0;
    memcpy(copy, begin, (size_t)length);
    copy[length] = 0;

    *number = PyOS_string_to_double(copy, NULL, NULL);
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return 0;
    }
    return isfinite(*number) && !(negative && *number == 0);
}

/* What is not wanted: a text, a number or a word; never an object or a list. */
static int skip_value(cursor *at) {
    const char *begin;
    Py_ssize_t length;
    double number;

    if (at->next >= at->end)
        return 0;
    if (*at->next == '"')
        return take_text(at, &begin, &length);
    if (*at->next == '-' || is_digit(at))
        return take_number(at, &number);
    return take_all(at, "true", 4) || take_all(at, "false", 5) || take_all(at, "null", 4);
}

static int take_value(cursor *at, field *one, Py_ssize_t row) {
    const char *begin;
    Py_ssize_t length;

    switch (one->kind) {
    case NUMBER:
        return take_number(at, one->numbers + row);
    case FIXED:
        return take_all(at, one->fixed, one->fixed_length);
    case TEXT:
        if (!take_text(at, &begin, &length))
            return 0;
        memcpy(one->texts + one->ends[row], begin, (size_t)length);
        one->ends[row + 1] = one->ends[row] + (int32_t)length;
        return 1;
    default:
        return skip_value(at);
    }
}

static int take_record(cursor *at, field *fields, Py_ssize_t n_fields, Py_ssize_t row) {
    if (!take(at, '{'))
        return 0;

    for (Py_ssize_t i = 0; i < n_fields; i++) {
        if (i > 0 && !take(at, ','))
            return 0;
        if (!take_all(at, fields[i].name, fields[i].name_length) || !take(at, ':'))
            return 0;
        if (!take_value(at, fields + i, row))
            return 0;
    }

    return take(at, '}');
}

/* Each record is one line, and each line a record. */
static int take_records(cursor *at, field *fields, Py_ssize_t n_fields, Py_ssize_t count) {
    for (Py_ssize_t row = 0; row < count; row++) {
        if (!take_record(at, fields, n_fields, row))
            return 0;
        if (at->next < at->end ? *at->next++ != '\n' : row + 1 < count)
            return 0;
    }

    return at->next == at->end;
}

static int make_room(field *one, Py_ssize_t count, Py_ssize_t size) {
    if (one->kind == NUMBER)
        return (one->numbers = malloc(((size_t)count + 1) * sizeof(double))) != NULL;
    if (one->kind == TIME)
        return (one->times = malloc(((size_t)count + 1) * sizeof(int64_t))) != NULL;
    if (one->kind != TEXT)
        return 1;

    one->ends = malloc(((size_t)count + 1) * sizeof(int32_t));
    one->texts = malloc((size_t)size + 1);
    if (one->ends == NULL || one->texts == NULL)
        return 0;
    one->ends[0] = 0;
    return 1;
}

/* A column as bytes: floats, or ends and texts. */
static PyObject *column(const field *one, Py_ssize_t count) {
    if (one->kind == NUMBER)
        return Py_BuildValue("y#", (char *)one->numbers, count * (Py_ssize_t)sizeof(double));
    if (one->kind == TIME)
        return Py_BuildValue("y#", (char *)one->times, count * (Py_ssize_t)sizeof(int64_t));
    if (one->kind != TEXT)
        return Py_BuildValue("");

    Py_ssize_t ends = (count + 1) * (Py_ssize_t)sizeof(int32_t);
    return Py_BuildValue("y#y#", (char *)one->ends, ends, one->texts, (Py_ssize_t)one->ends[count]);
}

static PyObject *columns(const field *fields, Py_ssize_t n_fields, Py_ssize_t count) {
    PyObject *result = PyTuple_New(n_fields);

    for (Py_ssize_t i = 0; result != NULL && i < n_fields; i++) {
        PyObject *made = column(fields + i, count);
        if (made == NULL || PyTuple_SetItem(result, i, made) < 0)
            Py_CLEAR(result);
    }

    return result;
}

static void free_columns(field *fields) {
    for (int i = 0; i < MAX_FIELDS; i++) {
        free(fields[i].numbers);
        free(fields[i].times);
        free(fields[i].ends);
        free(fields[i].texts);
    }
}

static PyObject *read_lines(PyObject *module, PyObject *args) {
    Py_buffer text;
    Py_ssize_t count;
    PyObject *shape;
    field fields[MAX_FIELDS];
    PyObject *result = NULL;

    memset(fields, 0, sizeof fields);
    if (!PyArg_ParseTuple(args, "y*nO!", &text, &count, &PyTuple_Type, &shape))
        return NULL;

    Py_ssize_t n_fields = PyTuple_Size(shape);
    int fits = n_fields > 0 && n_fields <= MAX_FIELDS && count > 0 && count <= text.len &&
               text.len < INT32_MAX;

    for (Py_ssize_t i = 0; fits && i < n_fields; i++) {
        field *one = fields + i;
        int kind;
        if (!PyArg_ParseTuple(PyTuple_GetItem(shape, i), "iy#z#", &kind, &one->name,
                              &one->name_length, &one->fixed, &one->fixed_length))
            goto done;
        one->kind = (enum kind)kind;
        fits = one->kind != FIXED || one->fixed != NULL;
        if (!make_room(one, count, text.len)) {
            PyErr_NoMemory();
            goto done;
        }
    }

    cursor at = {text.buf, (const char *)text.buf + text.len};
    if (fits && take_records(&at, fields, n_fields, count))
        result = columns(fields, n_fields, count);
    else
        result = Py_BuildValue("");

done:
    free_columns(fields);
    PyBuffer_Release(&text);
    return result;
}

/* -- rows of CSV to columns ------------------------------------------------------------------- */

/* Texts that mean a missing value (csv_file.py): who knows these reads them. */
static int is_missing(const char *text, Py_ssize_t length) {
    static const char *const missing[] = {"", "NA", "N/A", "null", "NULL", "None"};

    if (length > 4)
        return 0;
    for (size_t i = 0; i < sizeof missing / sizeof *missing; i++)
        if ((Py_ssize_t)strlen(missing[i]) == length && memcmp(text, missing[i], (size_t)length) == 0)
            return 1;
    return 0;
}

/* What a cell holds, with its quotes or without; one with a control character in it is none. */
static int take_cell_text(cursor *at, char delimiter, int quoted, const char **end) {
    for (; at->next < at->end; at->next++) {
        char c = *at->next;
        if (c == '"' || (!quoted && (c == delimiter || c == '\n')))
            break;
        if ((unsigned char)c < 0x20 && c != delimiter)
            return 0;
    }

    *end = at->next;
    return 1;
}

/* So many digits and no more, as a number. */
static int take_digits(cursor *at, int count, int *number) {
    *number = 0;
    for (; count > 0; count--, at->next++) {
        if (!is_digit(at))
            return 0;
        *number = *number * 10 + (*at->next - '0');
    }
    return 1;
}

/* Days from the epoch to a day of the calendar; a year begins in March, so that the leap day ends it. */
static int64_t days_to(int year, int month, int day) {
    int64_t years = month > 2 ? year : year - 1;
    int64_t since_march = (month + 9) % 12;
    return years * 365 + years / 4 - years / 100 + years / 400 + (153 * since_march + 2) / 5 + day -
           719469;
}

static int days_of(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int leaps = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return days[month - 1] + (month == 2 && leaps);
}

/* A time of ISO 8601 to the second or its fraction, of UTC: with a Z or without. */
static int take_time(cursor *at, int64_t *micros) {
    int year, month, day, hour, minute, second;
    int fraction = 0;
    int digits = 6;

    if (!take_digits(at, 4, &year) || !take_all(at, "-", 1) || !take_digits(at, 2, &month) ||
        !take_all(at, "-", 1) || !take_digits(at, 2, &day))
        return 0;
    if (!take_all(at, "T", 1) && !take_all(at, " ", 1))
        return 0;
    if (!take_digits(at, 2, &hour) || !take_all(at, ":", 1) || !take_digits(at, 2, &minute) ||
        !take_all(at, ":", 1) || !take_digits(at, 2, &second))
        return 0;

    if (take_all(at, ".", 1)) {
        if (!is_digit(at))
            return 0;
        for (; digits > 0 && is_digit(at); digits--, at->next++)
            fraction = fraction * 10 + (*at->next - '0');
        for (; digits > 0; digits--)
            fraction *= 10;
    }
    take_all(at, "Z", 1);

    if (year < 1 || month < 1 || month > 12 || day < 1 || day > days_of(year, month) || hour > 23 ||
        minute > 59 || second > 59)
        return 0;

    int64_t seconds = days_to(year, month, day) * 86400 + hour * 3600 + minute * 60 + second;
    *micros = seconds * 1000000 + fraction;
    return 1;
}

/* A cell up to its end: a quote that opens it closes it, and no other is in it. */
static int take_cell(cursor *at, char delimiter, field *one, Py_ssize_t row) {
    const char *end;
    int quoted = take_all(at, "\"", 1);
    const char *begin = at->next;

    switch (one->kind) {
    case NUMBER:
        if (!take_number(at, one->numbers + row))
            return 0;
        break;
    case TIME:
        if (!take_time(at, one->times + row))
            return 0;
        break;
    default:
        if (!take_cell_text(at, delimiter, quoted, &end))
            return 0;
        if (one->kind != TEXT)
            break;
        if (is_missing(begin, end - begin))
            return 0;
        memcpy(one->texts + one->ends[row], begin, (size_t)(end - begin));
        one->ends[row + 1] = one->ends[row] + (int32_t)(end - begin);
    }

    if (quoted && !take_all(at, "\"", 1))
        return 0;
    return at->next >= at->end || *at->next == delimiter || *at->next == '\n';
}

/* Each row is one line; a byte order mark before one is for others. */
static int take_rows(cursor *at, char delimiter, field *fields, Py_ssize_t n_fields,
                     Py_ssize_t count) {
    for (Py_ssize_t row = 0; row < count; row++) {
        if (at->next < at->end && (unsigned char)*at->next == 0xEF)
            return 0;

        for (Py_ssize_t i = 0; i < n_fields; i++) {
            if (i > 0 && !take_all(at, &delimiter, 1))
                return 0;
            if (!take_cell(at, delimiter, fields + i, row))
                return 0;
        }

        if (at->next < at->end ? *at->next++ != '\n' : row + 1 < count)
            return 0;
    }

    return at->next == at->end;
}

static PyObject *read_rows(PyObject *module, PyObject *args) {
    Py_buffer text, kinds;
    Py_ssize_t count;
    int delimiter;
    field fields[MAX_FIELDS];
    PyObject *result = NULL;

    memset(fields, 0, sizeof fields);
    if (!PyArg_ParseTuple(args, "y*niy*", &text, &count, &delimiter, &kinds))
        return NULL;

    Py_ssize_t n_fields = kinds.len;
    int fits = n_fields > 0 && n_fields <= MAX_FIELDS && count > 0 && count <= text.len &&
               text.len < INT32_MAX;

    for (Py_ssize_t i = 0; fits && i < n_fields; i++) {
        fields[i].kind = (enum kind)((const char *)kinds.buf)[i];
        if (!make_room(fields + i, count, text.len)) {
            PyErr_NoMemory();
            goto done;
        }
    }

    cursor at = {text.buf, (const char *)text.buf + text.len};
    if (fits && take_rows(&at, (char)delimiter, fields, n_fields, count))
        result = columns(fields, n_fields, count);
    else
        result = Py_BuildValue("");

done:
    free_columns(fields);
    PyBuffer_Release(&text);
    PyBuffer_Release(&kinds);
    return result;
}

/* -- names to codes --------------------------------------------------------------------------- */

/* A name that has found no free slot after so many is not in the table: its owner finds it. */
enum { PROBES = 16, FIRST_SLOTS = 1 << 14, TOGETHER = 64 };

typedef struct {
    uint32_t hash; /* its leading half; the place of the slot says the other */
    int32_t code;  /* plus one; 0 is an empty slot */
    uint32_t begin;
    uint32_t length;
} slot;

typedef struct {
    PyObject_HEAD
    uint64_t seed;
    slot *slots;
    size_t n_slots; /* a power of two, at least four times as many as names */
    char *names;
    size_t used;
    size_t room;
    int32_t count;
} name_table;

static uint64_t hash_of(uint64_t seed, const char *name, size_t length) {
    uint64_t hash = seed ^ (length * 0x9E3779B97F4A7C15ull);
    uint64_t word;

    for (; length >= 8; name += 8, length -= 8) {
        memcpy(&word, name, 8);
        hash = (hash ^ word) * 0xBF58476D1CE4E5B9ull;
        hash ^= hash >> 29;
    }

    word = 0;
    for (size_t i = 0; i < length; i++)
        word = word << 8 | (unsigned char)name[i];
    hash = (hash ^ word) * 0x94D049BB133111EBull;
    hash ^= hash >> 32;
    hash *= 0xBF58476D1CE4E5B9ull;
    return hash ^ (hash >> 29);
}

/* The slot where a name is, or a free one for it; NULL if neither is near. */
static slot *slot_of(const name_table *self, uint64_t hash, const char *name, size_t length) {
    for (size_t i = 0; i < PROBES; i++) {
        slot *one = self->slots + ((hash + i) & (self->n_slots - 1));
        if (one->code == 0)
            return one;
        if (one->hash == (uint32_t)(hash >> 32) && one->length == length &&
            memcmp(self->names + one->begin, name, length) == 0)
            return one;
    }

    return NULL;
}

static void put(name_table *self, slot entry) {
    const char *name = self->names + entry.begin;
    uint64_t hash = hash_of(self->seed, name, entry.length);
    slot *one = slot_of(self, hash, name, entry.length);

    if (one != NULL && one->code == 0) {
        *one = entry;
        one->hash = (uint32_t)(hash >> 32);
    }
}

static int widen(name_table *self, size_t n_slots) {
    slot *old = self->slots;
    size_t n_old = self->n_slots;
    slot *wider = calloc(n_slots, sizeof(slot));

    if (wider == NULL)
        return 0;
    self->slots = wider;
    self->n_slots = n_slots;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].code != 0)
            put(self, old[i]);
    free(old);
    return 1;
}

static int add_name(name_table *self, const char *name, size_t length) {
    if (self->count == INT32_MAX - 1 || length > UINT32_MAX - self->used)
        return 0;
    if ((size_t)self->count * 4 >= self->n_slots && !widen(self, self->n_slots * 2))
        return 0;

    if (self->used + length > self->room) {
        size_t room = 2 * (self->used + length) + 4096;
        char *names = realloc(self->names, room);
        if (names == NULL)
            return 0;
        self->names = names;
        self->room = room;
    }

    slot entry = {0, ++self->count, (uint32_t)self->used, (uint32_t)length};
    memcpy(self->names + self->used, name, length);
    self->used += length;
    put(self, entry);
    return 1;
}

/* Some names at once, so that one does not wait until another one's slot comes from memory. */
static void find_some(const name_table *self, const char *data, const int32_t *ends, size_t count,
                      int64_t *codes) {
    uint64_t hashes[TOGETHER];

    for (size_t i = 0; i < count; i++) {
        hashes[i] = hash_of(self->seed, data + ends[i], (size_t)(ends[i + 1] - ends[i]));
        __builtin_prefetch(self->slots + (hashes[i] & (self->n_slots - 1)));
    }
    for (size_t i = 0; i < count; i++)
        __builtin_prefetch(self->names + self->slots[hashes[i] & (self->n_slots - 1)].begin);

    for (size_t i = 0; i < count; i++) {
        size_t length = (size_t)(ends[i + 1] - ends[i]);
        const slot *one = slot_of(self, hashes[i], data + ends[i], length);
        codes[i] = one == NULL ? -1 : (int64_t)one->code - 1;
    }
}

static PyObject *names_find(PyObject *object, PyObject *args) {
    name_table *self = (name_table *)object;
    Py_buffer ends_of, data;
    int32_t ends[TOGETHER + 1];
    PyObject *result = NULL;

    if (!PyArg_ParseTuple(args, "y*y*", &ends_of, &data))
        return NULL;

    size_t count = ends_of.len < 4 ? 0 : (size_t)ends_of.len / sizeof(int32_t) - 1;
    int64_t *codes = malloc((count + 1) * sizeof(int64_t));
    if (codes == NULL) {
        PyErr_NoMemory();
        goto done;
    }

    for (size_t first = 0; first < count; first += TOGETHER) {
        size_t some = count - first < TOGETHER ? count - first : TOGETHER;
        memcpy(ends, (const char *)ends_of.buf + first * sizeof(int32_t),
               (some + 1) * sizeof(int32_t));
        for (size_t i = 0; i < some; i++)
            if (ends[i] < 0 || ends[i + 1] < ends[i] || ends[i + 1] > data.len) {
                PyErr_SetString(PyExc_ValueError, "ends must grow within the data");
                goto done;
            }
        find_some(self, data.buf, ends, some, codes + first);
    }

    result = PyBytes_FromStringAndSize((char *)codes, (Py_ssize_t)(count * sizeof(int64_t)));

done:
    free(codes);
    PyBuffer_Release(&ends_of);
    PyBuffer_Release(&data);
    return result;
}

static PyObject *names_add(PyObject *object, PyObject *names) {
    if (!PyList_Check(names)) {
        PyErr_SetString(PyExc_TypeError, "names must be a list of bytes");
        return NULL;
    }

    for (Py_ssize_t i = 0; i < PyList_Size(names); i++) {
        char *name;
        Py_ssize_t length;
        if (PyBytes_AsStringAndSize(PyList_GetItem(names, i), &name, &length) < 0)
            return NULL;
        if (!add_name((name_table *)object, name, (size_t)length))
            return PyErr_NoMemory();
    }

    return Py_BuildValue("");
}

static Py_ssize_t names_length(PyObject *object) {
    return ((name_table *)object)->count;
}

static PyObject *names_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    unsigned long long seed;
    if (!PyArg_ParseTuple(args, "K", &seed))
        return NULL;

    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    name_table *self = (name_table *)allocate(type, 0);
    if (self == NULL)
        return NULL;

    self->seed = seed;
    self->names = malloc(1); /* never NULL, for names of no bytes */
    if (self->names == NULL || !widen(self, FIRST_SLOTS)) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void names_free(PyObject *object) {
    name_table *self = (name_table *)object;
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    free(self->slots);
    free(self->names);
    release(object);
    Py_DECREF(type);
}

static PyMethodDef names_methods[] = {
    {"find", names_find, METH_VARARGS, "Give the code of each text, -1 where it is not found."},
    {"add", names_add, METH_O, "Give the next codes to names."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot names_slots[] = {
    {Py_tp_doc, "Names and their codes, in the order in which they were added."},
    {Py_tp_new, names_new},
    {Py_tp_dealloc, names_free},
    {Py_tp_methods, names_methods},
    {Py_sq_length, names_length},
    {0, NULL},
};

static PyType_Spec names_spec = {"meanstream.streaming.sources.compiled_records.Names",
                                 sizeof(name_table), 0, Py_TPFLAGS_DEFAULT, names_slots};

/* -- the module ------------------------------------------------------------------------------- */

static int fill(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &names_spec, NULL);
    if (type == NULL)
        return -1;

    int failed = PyModule_AddObjectRef(module, "Names", type);
    Py_DECREF(type);
    return failed;
}

static PyMethodDef methods[] = {
    {"read_lines", read_lines, METH_VARARGS,
     "Read lines of one shape to columns; None if some line has another one."},
    {"read_rows", read_rows, METH_VARARGS,
     "Read rows of plain fields to columns; None if some row has another field."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "compiled_records", "Lines to columns, names to codes.", 0, methods,
    slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_compiled_records(void) {
    return PyModuleDef_Init(&definition);
}
