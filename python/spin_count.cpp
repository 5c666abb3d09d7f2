// scaffolding._spin_count, a module of its own: it must be there before _core loads GNU OpenMP.
#include <Python.h>

#include "scaffolding/core/spin_count.h"

namespace {

PyObject* spin_count(PyObject*, PyObject*) { return PyLong_FromLong(sf::spin_count()); }

PyMethodDef methods[] = {{"spin_count", spin_count, METH_NOARGS, "Pauses that OpenMP's threads shall wait."},
                         {nullptr, nullptr, 0, nullptr}};
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_spin_count", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__spin_count() { return PyModule_Create(&definition); }
